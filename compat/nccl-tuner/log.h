// Writes lines to NCCL's log; NCCL_DEBUG and NCCL_DEBUG_SUBSYS=TUNING select those that are shown.
#pragma once

#include "base/printable.h"
#include "base/status.h"
#include "ccl/nccl/tuner_abi.h"

namespace hetccl::nccl_tuner {

/// Copyable. Thread-safe, as NCCL's function is. Lines may quote other ranks, so they are escaped
/// and cut at kMostBytes.
class NcclLog {
 public:
  static constexpr size_t kMostBytes = 512;
  explicit NcclLog(LogFunction function) : function_(function) {}
  void info(const std::string& text) const { write(kLogInfo, text); }
  void warn(const std::string& text) const { write(kLogWarn, text); }

 private:
  void write(int level, const std::string& text) const {
    if (function_ != nullptr)
      function_(level, kLogTuning, "nccl-tuner-hetccl", 0, "hetccl: %s",
                printable(text, kMostBytes).c_str());
  }
  LogFunction function_;
};

}  // namespace hetccl::nccl_tuner
