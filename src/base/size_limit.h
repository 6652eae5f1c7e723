// Grows files under a size limit (ulimit -f), which by default kills the process.
#pragma once

#include <signal.h>

#include <string_view>

#include "base/status.h"

namespace hetccl {

/// While it lives, growing a file beyond the limit returns EFBIG on this thread instead of SIGXFSZ.
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

/// Like `system_error`, but names the limit for EFBIG.
Status size_error(std::string_view what, int errno_value);

}  // namespace hetccl
