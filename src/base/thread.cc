#include "base/thread.h"

#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>

#include <new>
#include <system_error>
#include <utility>

namespace hetccl {
namespace {

// Blocks signals, since a new thread inherits the mask. Restores in a destructor, because starting
// a thread may throw.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t blocked;
    sigfillset(&blocked);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS}) {
      sigdelset(&blocked, fault);
    }
    pthread_sigmask(SIG_SETMASK, &blocked, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_{};
};

}  // namespace

Result<std::thread> start_thread(const char* name, std::function<void()> body) {
  const SignalsBlocked blocked;
  try {
    return std::thread([name, body = std::move(body)] {
      prctl(PR_SET_NAME, name);
      body();
    });
  } catch (const std::system_error& failure) {
    return error(ErrorCode::SystemError,
                 "cannot start thread %s: %s (raise the process's limit: ulimit -u, or the "
                 "container's pids limit)",
                 name, failure.code().message().c_str());
  } catch (const std::bad_alloc&) {
    return Status(ErrorCode::SystemError, "out of memory");
  }
}

}  // namespace hetccl
