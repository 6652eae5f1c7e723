// Growing files under a limit of their size (ulimit -f), which by default ends the process.
#pragma once

#include <signal.h>

#include <string_view>

#include "base/status.h"

namespace hetccl {

/// While it lives, growing a file beyond the limit is EFBIG on this thread, not the signal SIGXFSZ.
class SizeSignalBlocked {
 public:
  SizeSignalBlocked();
  ~SizeSignalBlocked();
  SizeSignalBlocked(const SizeSignalBlocked&) = delete;
  SizeSignalBlocked& operator=(const SizeSignalBlocked&) = delete;

 private:
  sigset_t before_{};
  bool was_pending_ = false;
};

/// As `system_error`; of EFBIG it names the limit.
Status size_error(std::string_view what, int errno_value);

}  // namespace hetccl
