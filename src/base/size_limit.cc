#include "base/size_limit.h"

#include <pthread.h>
#include <sys/resource.h>

#include <cerrno>
#include <string>

namespace hetccl {

namespace {

sigset_t size_signal() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGXFSZ);
  return set;
}

bool is_pending() {
  sigset_t pending;
  return sigpending(&pending) == 0 && sigismember(&pending, SIGXFSZ) == 1;
}

}  // namespace

SizeSignalBlocked::SizeSignalBlocked() : was_pending_(is_pending()) {
  const sigset_t set = size_signal();
  pthread_sigmask(SIG_BLOCK, &set, &before_);
}

// Takes back the signal of this thread's own writes; one that was pending before stays.
SizeSignalBlocked::~SizeSignalBlocked() {
  const int saved = errno;
  const sigset_t set = size_signal();
  const timespec now{};
  if (!was_pending_ && is_pending()) sigtimedwait(&set, nullptr, &now);
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  errno = saved;
}

Status size_error(std::string_view what, int errno_value) {
  rlimit limit{};
  if (errno_value != EFBIG || ::getrlimit(RLIMIT_FSIZE, &limit) != 0 ||
      limit.rlim_cur == RLIM_INFINITY)
    return system_error(what, errno_value);
  return error(ErrorCode::SystemError,
               "%s: this process's files may have %llu bytes: raise its limit (ulimit -f)",
               std::string(what).c_str(), static_cast<unsigned long long>(limit.rlim_cur));
}

}  // namespace hetccl
