#include "exec/host_arithmetic.h"

#include <cstring>

#include "base/encoding.h"

namespace hetccl::exec {
namespace {

void compute(void* reduction) {
  reduce(*static_cast<const device::Reduction*>(reduction));
}

}  // namespace

RedOp operator_of(RedOp call, bool average, bool scale) {
  if (average) return RedOp::Avg;
  if (scale) return RedOp::PreMulSum;
  return call == RedOp::Avg || call == RedOp::PreMulSum ? RedOp::Sum : call;
}

Combining combining_of(RedOp call, bool average, bool scale, Divisor divisor) {
  if (!scale || call != RedOp::Avg) return {operator_of(call, average, scale), divisor};
  // Every device can divide by a power of two in an average; few can multiply.
  return {RedOp::Avg, static_cast<uint32_t>(divisor.power())};
}

uint8_t arithmetic_by_host(const device::Device& device, const Signature& call, Divisor divisor) {
  const auto does = [&](bool average, bool scale, bool encoded) {
    const Combining how = combining_of(call.op, average, scale, divisor);
    const bool by_fraction = how.op == RedOp::Avg && !is_integer(call.type) && how.divisor.scaled &&
                             how.divisor.quotient() != 1;
    const uint32_t needed = encoded || by_fraction ? device::kEncodes : device::kKernels;
    return (device.capabilities() & needed) != 0 && device.supports(call.type, how.op);
  };
  const bool averages = call.op == RedOp::Avg, scales = averages || call.op == RedOp::PreMulSum;
  uint8_t by_host = 0;
  for (int kind = 0; kind < 8; ++kind) {
    const bool average = (kind & 1) != 0, scale = (kind & 2) != 0, encoded = (kind & 4) != 0;
    const bool occurs =
        (averages || !average) && (scales || !scale) && (!encoded || !call.encoding.is_none());
    if (occurs && !does(average, scale, encoded))
      by_host |= lower::arithmetic_of(average, scale, encoded);
  }
  return by_host;
}

Status HostReductions::prepare(size_t n, size_t n_srcs, size_t bytes) {
  calls_.clear();
  calls_.reserve(n);
  n_sources_ = n_srcs;
  operand_bytes_ = bytes;
  return staging_.reserve((n_srcs + 2) * bytes);
}

Status HostReductions::enqueue(device::Stream& stream, const device::Reduction& reduction) {
  if (calls_.size() == calls_.capacity()) {
    return error(ErrorCode::InternalError, "more than the %zu reductions that were announced",
                 calls_.size());
  }
  device::Reduction& call = calls_.emplace_back(reduction);
  for (int i = 0; i < call.n_srcs; ++i) {
    std::byte* source = staged(static_cast<size_t>(i));
    HETCCL_TRY(device_.copy(stream, source, reduction.srcs[i], bytes_of_operand(call, i)));
    call.srcs[i] = source;
  }
  call.dst = staged(n_sources_);
  const size_t residual_bytes = call.count * size_of(call.type);
  if (call.residual != nullptr) {
    call.residual = staged(n_sources_ + 1);
    HETCCL_TRY(device_.copy(stream, call.residual, reduction.residual, residual_bytes));
  }
  HETCCL_TRY(device_.call_host(stream, compute, &call));
  if (call.residual != nullptr)
    HETCCL_TRY(device_.copy(stream, reduction.residual, call.residual, residual_bytes));
  return device_.copy(stream, reduction.dst, call.dst,
                      bytes_of_operand(call, device::Reduction::kMaxSources));
}

Status IdentityArray::prepare(size_t count, DataType type, RedOp op) {
  if (count <= count_ && type == type_ && op == op_) return {};
  const size_t width = size_of(type);
  count_ = 0;
  filled_ = false;
  HETCCL_TRY(array_.reserve(count * width));
  HETCCL_TRY(source_.reserve(count * width));
  const Factor identity = identity_of(type, op);
  for (size_t i = 0; i < count; ++i) {
    std::memcpy(source_.data() + i * width, identity.element, width);
  }
  type_ = type;
  op_ = op;
  count_ = count;
  return {};
}

Status IdentityArray::fill(device::Stream& stream) {
  if (filled_) return {};
  HETCCL_TRY(device_.copy(stream, array_.data(), source_.data(), count_ * size_of(type_)));
  filled_ = true;
  return {};
}

}  // namespace hetccl::exec
