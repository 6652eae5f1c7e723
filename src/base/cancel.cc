#include "base/cancel.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>

namespace hetccl {

Result<std::unique_ptr<Cancel>> Cancel::create() {
  const int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (fd < 0) return system_error("eventfd to cancel waits", errno);
  return std::unique_ptr<Cancel>(new Cancel(fd));
}

Cancel::~Cancel() {
  close(fd_);
}

void Cancel::set(const Status& reason) {
  {
    std::lock_guard lock(mutex_);
    if (!reason_.ok()) return;
    reason_ = reason;
  }
  set_.store(true, std::memory_order_release);
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(fd_, &one, sizeof one);
}

Status Cancel::reason() const {
  std::lock_guard lock(mutex_);
  return reason_;
}

}  // namespace hetccl
