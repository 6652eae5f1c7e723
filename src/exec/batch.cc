#include "exec/batch.h"

#include <utility>

namespace hetccl::exec {

using device::StreamWork;

Status Batch::wait_flag(device::Stream& stream, device::Flag& flag, uint32_t value) {
  if (!holds_) return device_.wait_flag(stream, flag, value);
  return hold(stream, {.kind = StreamWork::Kind::Wait, .flag = &flag, .value = value});
}

Status Batch::write_flag(device::Stream& stream, device::Flag& flag, uint32_t value) {
  if (!holds_) return device_.write_flag(stream, flag, value);
  return hold(stream, {.kind = StreamWork::Kind::Write, .flag = &flag, .value = value});
}

Status Batch::copy(device::Stream& stream, void* dst, const void* src, size_t bytes) {
  if (launches_ == Launches::Block) return device_.copy(stream, dst, src, bytes);
  if (!holds_) return device_.copy_soon(stream, dst, src, bytes);
  StreamWork work{.kind = StreamWork::Kind::Copy};
  work.reduction.dst = dst;
  work.reduction.srcs[work.reduction.n_srcs++] = src;
  work.reduction.count = bytes;
  work.reduction.type = DataType::Uint8;
  return hold(stream, std::move(work));
}

Status Batch::reduce(device::Stream& stream, const device::Reduction& reduction) {
  if (!holds_) return device_.reduce(stream, reduction);
  return hold(stream, {.kind = StreamWork::Kind::Reduce, .reduction = reduction});
}

Status Batch::hold(device::Stream& stream, StreamWork&& work) {
  if (stream_ != &stream) HETCCL_TRY(flush());
  stream_ = &stream;
  work_.push_back(std::move(work));
  return {};
}

Status Batch::flush() {
  if (work_.empty()) return {};
  const Status status = device_.run(*stream_, work_, launches_ == Launches::Spin);
  work_.clear();
  return status;
}

}  // namespace hetccl::exec
