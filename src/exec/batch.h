// Collects consecutive short work for one stream, so that the device launches it together. A launch
// costs the caller more than short work takes.
#pragma once

#include <vector>

#include "device/device.h"

namespace hetccl::exec {

/// Used by the launching thread only. `flush` enqueues the collected work. Call it before any other
/// work on that stream, and before the caller returns.
class Batch {
 public:
  enum class Launches : uint8_t {
    Spin,   ///< kernels may spin on flags: see device::Device::run
    Yield,  ///< other processes share the device: streams wait instead
    Block,  ///< launches return when the kernel ends: avoid a kernel behind a wait
  };
  /// Collects nothing if the device cannot launch together, or if launches block.
  Batch(device::Device& device, Launches launches)
      : device_(device),
        launches_(launches),
        holds_((device.capabilities() & device::kBatches) != 0 && launches != Launches::Block) {}

  Status wait_flag(device::Stream& stream, device::Flag& flag, uint32_t value);
  Status write_flag(device::Stream& stream, device::Flag& flag, uint32_t value);
  Status copy(device::Stream& stream, void* dst, const void* src, size_t bytes);
  Status reduce(device::Stream& stream, const device::Reduction& reduction);
  Status flush();
  /// Discards the collected work, because its operation has failed.
  void drop() { work_.clear(); }

 private:
  Status hold(device::Stream& stream, device::StreamWork&& work);

  device::Device& device_;
  const Launches launches_;
  const bool holds_;
  device::Stream* stream_ = nullptr;  // the stream of `work_`
  std::vector<device::StreamWork> work_;
};

}  // namespace hetccl::exec
