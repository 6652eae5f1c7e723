// Device work that comes in a row on one stream, which a device may launch together: a launch costs
// its caller more than what it does, where that is short.
#pragma once

#include <vector>

#include "device/device.h"

namespace hetccl::exec {

/// By the launching thread alone. What it holds back is enqueued by `flush`, which has to come
/// before any other work of that stream, and before the caller returns.
class Batch {
 public:
  enum class Launches : uint8_t {
    Spin,   ///< kernels may wait for flags: see device::Device::run
    Yield,  ///< others take turns on the device: streams wait
    Block,  ///< they return once the kernel has ended: none comes behind a wait that can do without
  };
  /// It holds nothing back where the device launches nothing together, or launches block.
  Batch(device::Device& device, Launches launches)
      : device_(device),
        launches_(launches),
        holds_((device.capabilities() & device::kBatches) != 0 && launches != Launches::Block) {}

  Status wait_flag(device::Stream& stream, device::Flag& flag, uint32_t value);
  Status write_flag(device::Stream& stream, device::Flag& flag, uint32_t value);
  Status copy(device::Stream& stream, void* dst, const void* src, size_t bytes);
  Status reduce(device::Stream& stream, const device::Reduction& reduction);
  Status flush();
  /// Forgets it: what it was of has failed.
  void drop() { work_.clear(); }

 private:
  Status hold(device::Stream& stream, device::StreamWork&& work);

  device::Device& device_;
  const Launches launches_;
  const bool holds_;
  device::Stream* stream_ = nullptr;  // of `work_`
  std::vector<device::StreamWork> work_;
};

}  // namespace hetccl::exec
