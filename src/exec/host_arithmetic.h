// Arithmetic for devices that lack it, in pinned memory: what neither the device nor its vendor's
// library can do is done by the host, and ranks that add nothing to one contribute an array of
// identities.
#pragma once

#include <vector>

#include "base/types.h"
#include "device/device.h"
#include "exec/arena.h"
#include "lower/geometry.h"

namespace hetccl::exec {

/// The operator of a step of a call that combines by `call`. An average divides and a
/// pre-multiplied sum multiplies once, in the steps that say so; all others sum.
[[nodiscard]] RedOp operator_of(RedOp call, bool average, bool scale);

/// How a device, or the host for it, combines in such a step.
struct Combining {
  RedOp op{};
  Divisor divisor;
};
/// `divisor` is the call's.
[[nodiscard]] Combining combining_of(RedOp call, bool average, bool scale, Divisor divisor);

/// The arithmetic of a call's steps that `device` cannot do, as lower::CallShape has it.
[[nodiscard]] uint8_t arithmetic_by_host(const device::Device& device, const Signature& call,
                                         Divisor divisor);

/// The reductions of one operation that the host computes, each in its turn on one stream.
class HostReductions {
 public:
  explicit HostReductions(device::Device& device)
      : device_(device), staging_(device, Arena::Kind::Pinned) {}

  /// Takes memory for `n` reductions of at most `n_srcs` sources, whose operands have at most
  /// `bytes`; earlier ones must be complete.
  Status prepare(size_t n, size_t n_srcs, size_t bytes);
  /// As device::Device::reduce: of the `prepare`d ones the next.
  Status enqueue(device::Stream& stream, const device::Reduction& reduction);

 private:
  /// The memory of operand `i`: of a source, or behind these the result's and the residual's.
  [[nodiscard]] std::byte* staged(size_t i) const { return staging_.data() + i * operand_bytes_; }

  device::Device& device_;
  Arena staging_;
  size_t n_sources_ = 0, operand_bytes_ = 0;
  std::vector<device::Reduction> calls_;  // what host functions read: never moves while in use
};

/// An array of identities in device memory, made anew when the type or the operator changes.
class IdentityArray {
 public:
  explicit IdentityArray(device::Device& device)
      : device_(device),
        array_(device, Arena::Kind::Device),
        source_(device, Arena::Kind::Pinned) {}

  /// Takes memory for `count` elements; the array's last use must be complete.
  Status prepare(size_t count, DataType type, RedOp op);
  /// They are there for what is enqueued on `stream` later.
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
