#include "exec/host_arithmetic.h"

#include <cstring>

namespace hetccl::exec {
namespace {

void compute(void* reduction) {
  reduce(*static_cast<const device::Reduction*>(reduction));
}

}  // namespace

Status HostReductions::prepare(size_t n, size_t n_srcs, size_t bytes) {
  calls_.clear();
  calls_.reserve(n);
  source_bytes_ = bytes;
  return staging_.reserve(n_srcs * bytes);
}

Status HostReductions::enqueue(device::Stream& stream, const device::Reduction& reduction) {
  if (calls_.size() == calls_.capacity()) {
    return error(Code::InternalError, "more than the %zu reductions that were announced",
                 calls_.size());
  }
  if (reduction.encoded != 0)
    return error(Code::InternalError, "the host does not reduce encoded operands for a device");
  device::Reduction& call = calls_.emplace_back(reduction);
  const size_t bytes = call.count * size_of(call.type);
  for (int i = 0; i < call.n_srcs; ++i) {
    std::byte* source = staging_.data() + static_cast<size_t>(i) * source_bytes_;
    HETCCL_TRY(device_.copy(stream, source, reduction.srcs[i], bytes));
    call.srcs[i] = source;
  }
  call.dst = staging_.data();
  HETCCL_TRY(device_.call_host(stream, compute, &call));
  return device_.copy(stream, reduction.dst, call.dst, bytes);
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
