#include "exec/host_arithmetic.h"

#include <cstring>

#include "base/encoding.h"

namespace hetccl::exec {
namespace {

void compute(void* reduction) {
  reduce(*static_cast<const device::Reduction*>(reduction));
}

}  // namespace

bool reduces_itself(const device::Device& device, const device::Reduction& reduction) {
  const bool by_fraction = reduction.op == RedOp::Avg && !is_integer(reduction.type) &&
                           reduction.divisor.scaled && reduction.divisor.quotient() != 1;
  const uint32_t needed =
      reduction.encoded != 0 || by_fraction ? device::kEncodes : device::kKernels;
  return (device.capabilities() & needed) != 0 && device.supports(reduction.type, reduction.op);
}

bool reduces_all_itself(const device::Device& device, const Signature& call) {
  const auto itself = [&](RedOp op, uint32_t encoded) {
    return reduces_itself(device, {.type = call.type,
                                   .op = op,
                                   .divisor = Divisor(3, true),  // the most that it may take
                                   .encoded = encoded});
  };
  // Averages, multiples and gathers have sums in them.
  return itself(RedOp::Sum, 0) && (!reduces(call.collective) || itself(call.op, 0)) &&
         (call.encoding.is_none() || itself(RedOp::Sum, 1));
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
    return error(Code::InternalError, "more than the %zu reductions that were announced",
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

Status IdentityArray::fill(device::Stream& stream, size_t count, DataType type, RedOp op) {
  if (count <= count_ && type == type_ && op == op_) return {};
  const size_t width = size_of(type);
  count_ = 0;
  HETCCL_TRY(array_.reserve(count * width));
  HETCCL_TRY(source_.reserve(count * width));
  const Factor identity = identity_of(type, op);
  for (size_t i = 0; i < count; ++i) {
    std::memcpy(source_.data() + i * width, identity.element, width);
  }
  HETCCL_TRY(device_.copy(stream, array_.data(), source_.data(), count * width));
  type_ = type;
  op_ = op;
  count_ = count;
  return {};
}

}  // namespace hetccl::exec
