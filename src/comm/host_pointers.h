// Tells GPU memory from host memory, for ranks on the host: a host thread that reads GPU memory
// crashes the process.
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
  /// `gpus` must outlive it.
  explicit HostPointers(const std::list<Gpus>& gpus) : gpus_(gpus) {}
  /// Returns InvalidArgument if `address` is GPU memory that host threads cannot reach, as far as
  /// the drivers loaded in the process know. The text names `argument`, the GPU and the remedy.
  /// Takes nanoseconds for a recently checked address, else about a microsecond.
  Status check(const void* address, const char* argument);
  /// Returns the device name ("cuda:1") of the GPU that owns the memory at `address`, if host
  /// threads cannot reach that memory; else "". Takes about a microsecond.
  [[nodiscard]] std::string gpu_of(const void* address) const;

 private:
  const std::list<Gpus>& gpus_;
  // Addresses known to be host memory, by hash. GPU memory never appears at a former host address.
  std::array<std::atomic<const void*>, 64> known_{};
};

}  // namespace hetccl::comm
