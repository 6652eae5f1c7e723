// Arithmetic that neither the device nor its vendor's library can do: the host computes it in
// pinned memory. Ranks that contribute nothing to a reduction send an array of identities.
#pragma once

#include <vector>

#include "base/types.h"
#include "device/device.h"
#include "exec/arena.h"
#include "lower/geometry.h"

namespace hetccl::exec {

/// Returns the operator of a step in a call that combines by `call`. Steps with `average` divide,
/// steps with `scale` multiply by the pre-multiplied sum's factor; each happens once. All other
/// steps sum.
[[nodiscard]] RedOp operator_of(RedOp call, bool average, bool scale);

/// The operator and divisor with which a step's reduction combines, on the device or on the host in
/// its place.
struct Combining {
  RedOp op{};
  Divisor divisor;
};
/// Returns them for a step with these flags (plan::Step). `divisor` is the call's.
[[nodiscard]] Combining combining_of(RedOp call, bool average, bool scale, Divisor divisor);

/// Returns the arithmetic of the call's steps that `device` cannot do, as in lower::CallShape.
[[nodiscard]] uint8_t arithmetic_by_host(const device::Device& device, const Signature& call,
                                         Divisor divisor);

/// The reductions of one operation that the host computes, in order on one stream.
class HostReductions {
 public:
  explicit HostReductions(device::Device& device)
      : device_(device), staging_(device, Arena::Kind::Pinned) {}

  /// Allocates for `n` reductions of at most `n_srcs` sources, with operands of at most `bytes`.
  /// Earlier reductions must be complete.
  Status prepare(size_t n, size_t n_srcs, size_t bytes);
  /// Like device::Device::reduce, for the next of the prepared reductions.
  Status enqueue(device::Stream& stream, const device::Reduction& reduction);

 private:
  /// Returns the memory of operand `i`: the sources, then the result, then the residual.
  [[nodiscard]] std::byte* staged(size_t i) const { return staging_.data() + i * operand_bytes_; }

  device::Device& device_;
  Arena staging_;
  size_t n_sources_ = 0, operand_bytes_ = 0;
  std::vector<device::Reduction> calls_;  // read by host functions: must not move while in use
};

/// An array of identities in device memory, rewritten when the type or operator changes.
class IdentityArray {
 public:
  explicit IdentityArray(device::Device& device)
      : device_(device),
        array_(device, Arena::Kind::Device),
        source_(device, Arena::Kind::Pinned) {}

  /// Allocates `count` elements. The array's last use must be complete.
  Status prepare(size_t count, DataType type, RedOp op);
  /// Writes the identities for work enqueued on `stream` afterwards.
  Status fill(device::Stream& stream);
  [[nodiscard]] std::byte* data() const { return array_.data(); }

 private:
  device::Device& device_;
  Arena array_, source_;
  DataType type_{};
  RedOp op_{};
  size_t count_ = 0;
  bool filled_ = false;
};

}  // namespace hetccl::exec
