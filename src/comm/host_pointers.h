// Tells a GPU's memory from the host's, for ranks of the host: what a host thread reads of a GPU's
// memory ends the process.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <list>
#include <string>

#include "base/status.h"
#include "comm/gpus.h"

namespace hetccl::comm {

/// Thread-safe.
class HostPointers {
 public:
  /// `gpus` outlive it.
  explicit HostPointers(const std::list<Gpus>& gpus) : gpus_(gpus) {}
  /// InvalidArgument where `address` is memory of a GPU that host threads cannot reach, as far as
  /// drivers tell that the process has loaded: the text names `argument`, the GPU and the remedy.
  /// Costs a few nanoseconds for an address that was asked for lately, else a microsecond.
  Status check(const void* address, const char* argument);
  /// The GPU whose memory `address` is, and which host threads cannot reach, as a device's name; ""
  /// where it is none's. Costs a microsecond.
  [[nodiscard]] std::string gpu_of(const void* address) const;

 private:
  const std::list<Gpus>& gpus_;
  // Addresses that are the host's, by a hash. A GPU's memory does not come where the host's was.
  std::array<std::atomic<const void*>, 64> known_{};
};

}  // namespace hetccl::comm
