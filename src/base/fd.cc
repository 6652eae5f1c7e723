#include "base/fd.h"

#include <unistd.h>

namespace hetccl {

Fd& Fd::operator=(Fd&& other) noexcept {
  if (this != &other) {
    reset();
    fd_ = std::exchange(other.fd_, -1);
  }
  return *this;
}

Fd::~Fd() {
  reset();
}

void Fd::reset() {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

}  // namespace hetccl
