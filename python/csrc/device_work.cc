#include "device_work.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/jit_type.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>
#include <c10/util/Exception.h>

namespace hetccl::torch_backend {

DeviceWork::DeviceWork(int rank, uint64_t sequence, std::shared_ptr<const GroupName> group,
                       Request request, std::shared_ptr<Communicator> communicator,
                       std::shared_ptr<Watcher> watcher, std::shared_ptr<DeviceStreams> streams)
    : HetcclWork(rank, sequence, std::move(group), std::move(request), std::move(communicator),
                 std::move(watcher)),
      streams_(std::move(streams)) {}

DeviceWork::~DeviceWork() {
  keep_until_complete();
}

void DeviceWork::launch(std::chrono::milliseconds timeout, bool blocking) {
  // Events are created on the current device.
  const c10::DeviceGuard guard(streams_->device());
  for (const auto& member : request_.members) {
    const auto& part = static_cast<const DeviceWork&>(*member);
    marks_.insert(marks_.end(), part.marks_.begin(), part.marks_.end());
    reaches_host_ = reaches_host_ || part.reaches_host_;
    captured_ = captured_ || part.captured_;
    launched_ = true;
  }
  if (!request_.calls.empty()) {
    const c10::Stream current = streams_->current();
    const c10::Stream stream = blocking ? current : streams_->of(request_.order);
    captured_ = communicator_->is_capturing(current.native_handle());
    TORCH_CHECK_VALUE(!captured_ || request_.host_copies.empty(), describe(),
                      ": a tensor of host memory cannot be part of a CUDA graph");
    if (stream != current) streams_->mark(current)->block(stream);
    enqueue(timeout, stream);
    // Later uses of these tensors on the caller's stream are ordered after this work. Tensors of a
    // graph are held by the graph's memory pool, because nobody waits for the graph's runs here.
    if (captured_ && stream != current) keep_for(stream);
    if ((stream == current && !reaches_host_) || captured_) release_tensors();
  }
  if (recordFunctionEndCallback_) {
    recordFunctionEndCallback_();
    recordFunctionEndCallback_ = nullptr;
  }
}

void DeviceWork::enqueue(std::chrono::milliseconds timeout, const c10::Stream& stream) {
  const auto failure =
      communicator_->start(request_.calls, stream.native_handle(), timeout, nullptr);
  launched_ = true;  // at least partly
  if (failure) {
    request_.drop_results();
    mark(stream);
    // A capture may only end once all streams that joined it have been joined back.
    if (captured_) streams_->mark(stream)->block(streams_->current());
    const std::exception_ptr error = error_of(*failure);
    finish(error);
    std::rethrow_exception(error);
  }
  request_.calls.clear();
  if (!request_.copies.empty() || request_.conclude) {
    const c10::StreamGuard on_stream(stream);
    const at::AutoDispatchBelowADInplaceOrView raw;  // as in run_copies
    for (const auto& [to, from] : request_.copies) to.copy_(from);
    if (request_.conclude) request_.conclude();
    request_.conclude = nullptr;
  }
  // Copies to host tensors are left to `settle`.
  request_.copies = std::move(request_.host_copies);
  reaches_host_ = !request_.copies.empty();
  mark(stream);
}

void DeviceWork::keep_for(const c10::Stream& stream) const {
  for (const Tensors* tensors : {&request_.inputs, &request_.outputs, &request_.staging}) {
    for (const at::Tensor& tensor : *tensors) {
      if (tensor.defined() && tensor.numel() > 0) tensor.record_stream(stream);
    }
  }
}

void DeviceWork::mark(const c10::Stream& stream) {
  marks_.push_back(streams_->mark(stream));
  if (!captured_) streams_->note(stream, marks_.back());
}

bool DeviceWork::reached() const {
  return captured_ || all_reached(marks_);
}

std::function<void()> DeviceWork::until_reached() const {
  if (captured_) return [] {};
  return [marks = marks_, device = streams_->device()] { await_in_background(marks, device); };
}

std::optional<Failure> DeviceWork::failure() const {
  if (const auto failure = communicator_->failure()) return failure;
  if (!any_failed(marks_)) return std::nullopt;
  return Failure{hetcclSystemError,
                 "the GPU has failed, and results are worthless; restart this process"};
}

bool DeviceWork::wait(std::chrono::milliseconds timeout) {
  blockCurrentStream();
  const bool limited = timeout > kNoTimeout;
  if (limited || reaches_host_ || retrieveOpType() == c10d::OpType::BARRIER) {
    if (!poll_until([this] { return reached(); }, limited ? timeout : kForever)) {
      std::rethrow_exception(error_of_wait(timeout));
    }
    settle();
  }
  check();
  if (settled()) return true;
  // Reports a failure that is known by now; the next call reports a later one.
  if (const auto failed = failure()) std::rethrow_exception(error_of(*failed));
  release_tensors();
  return true;
}

void DeviceWork::blockCurrentStream() {
  const c10::DeviceGuard guard(streams_->device());
  const c10::Stream current = streams_->current();
  for (const auto& mark : marks_) mark->block(current);
}

HetcclWork::FuturePtr DeviceWork::getFuture() {
  if (reaches_host_) return HetcclWork::getFuture();
  const c10::DeviceGuard guard(streams_->device());
  const std::lock_guard lock(settle_mutex_);
  if (future_) return future_;
  const c10::TypePtr outputs = c10::ListType::create(c10::TensorType::get());
  future_ = c10::make_intrusive<c10::ivalue::Future>(outputs,
                                                     std::vector<c10::Device>{streams_->device()});
  // The future records the current stream's end, so the current stream is one that waits only for
  // this work.
  const c10::Stream stream = streams_->another();
  for (const auto& mark : marks_) mark->block(stream);
  const c10::StreamGuard on_stream(stream);
  future_->markCompleted(c10::IValue(request_.outputs));
  return future_;
}

}  // namespace hetccl::torch_backend
