// Arithmetic for devices without kernels, in pinned memory: what the vendor's reduce cannot do is
// done by the host, and ranks that add nothing to one contribute an array of identities.
#pragma once

#include <vector>

#include "device/device.h"
#include "exec/arena.h"

namespace hetccl::exec {

/// The reductions of one operation, each in its turn on one stream.
class HostReductions {
 public:
  explicit HostReductions(device::Device& device)
      : device_(device), staging_(device, Arena::Kind::Pinned) {}

  /// Takes memory for `n` reductions of at most `n_srcs` sources of `bytes`; earlier ones must be
  /// complete.
  Status prepare(size_t n, size_t n_srcs, size_t bytes);
  /// As device::Device::reduce, of operands that are not encoded: of the `prepare`d ones the next.
  Status enqueue(device::Stream& stream, const device::Reduction& reduction);

 private:
  device::Device& device_;
  Arena staging_;  // a source each
  size_t source_bytes_ = 0;
  std::vector<device::Reduction> calls_;  // what host functions read: never moves while in use
};

/// An array of identities in device memory, made anew when the type or the operator changes.
class IdentityArray {
 public:
  explicit IdentityArray(device::Device& device)
      : device_(device),
        array_(device, Arena::Kind::Device),
        source_(device, Arena::Kind::Pinned) {}

  /// `count` elements, there for what is enqueued on `stream` later; the array's last use must be
  /// complete.
  Status fill(device::Stream& stream, size_t count, DataType type, RedOp op);
  [[nodiscard]] std::byte* data() const { return array_.data(); }

 private:
  device::Device& device_;
  Arena array_, source_;
  DataType type_{};
  RedOp op_{};
  size_t count_ = 0;
};

}  // namespace hetccl::exec
