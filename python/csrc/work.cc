#include "work.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/jit_type.h>
#include <c10/util/Exception.h>

namespace hetccl::torch_backend {
namespace {

constexpr std::chrono::milliseconds kForever{-1};

using Copies = std::vector<std::pair<at::Tensor, at::Tensor>>;

void run_copies(const Copies& copies) {
  const at::AutoDispatchBelowADInplaceOrView raw;  // outputs may be leaves that require gradients
  for (const auto& [to, from] : copies) to.copy_(from);
}

}  // namespace

HetcclWork::HetcclWork(int rank, uint64_t sequence, std::string group, Operation operation,
                       std::shared_ptr<Communicator> communicator, std::shared_ptr<Watcher> watcher)
    : Work(rank, operation.type, operation.title, operation.inputs),
      rank_in_group_(rank),
      sequence_(sequence),
      group_(std::move(group)),
      communicator_(std::move(communicator)),
      watcher_(std::move(watcher)),
      operation_(std::move(operation)) {}

HetcclWork::~HetcclWork() {
  if (!launched_ || settled_.load(std::memory_order_acquire)) return;
  // Dropped before completion: the engine still reads and writes these tensors.
  auto rest = std::make_shared<Operation>(std::move(operation_));
  watcher_->add([rest, communicator = communicator_, ticket = ticket_] {
    std::ignore = communicator->wait(ticket, kForever);
    if (communicator->failure()) return;
    run_copies(rest->copies);
  });
}

void HetcclWork::launch(std::chrono::milliseconds timeout, bool blocking) {
  for (const Launch& call : operation_.launches) {
    const auto failure = communicator_->launch(call, timeout, blocking, ticket_);
    if (!failure) {
      launched_ = true;
      continue;
    }
    const std::exception_ptr error = error_of(*failure);
    finish(error);
    std::rethrow_exception(error);
  }
  operation_.launches.clear();
  if (blocking && communicator_->reached(ticket_)) settle();
  // The profiler's event ends when the collective does, not when somebody asks.
  if (recordFunctionEndCallback_) std::ignore = getFuture();
}

std::string HetcclWork::describe() const {
  const std::string title = operation_.title;
  return c10::str("hetccl: ", title.substr(title.find(':') + 1), " (operation ", sequence_,
                  " of process group '", group_, "') on rank ", rank_in_group_);
}

std::exception_ptr HetcclWork::error_of(const Failure& failure) const {
  const std::string text =
      c10::str(describe(), ": ", failure.text, " [", hetcclGetErrorString(failure.result), "]");
  const c10::SourceLocation here{__func__, __FILE__, static_cast<uint32_t>(__LINE__)};
  if (failure.result == hetcclInvalidArgument) {
    return std::make_exception_ptr(c10::ValueError(here, text));
  }
  return std::make_exception_ptr(c10::DistBackendError(here, text));
}

void HetcclWork::settle() {
  const std::lock_guard lock(settle_mutex_);
  if (settled_.load(std::memory_order_relaxed)) return;
  if (const auto failure = communicator_->failure()) {
    error_ = error_of(*failure);
  } else {
    try {
      run_copies(operation_.copies);
    } catch (...) {
      error_ = std::current_exception();
    }
  }
  operation_.copies.clear();
  operation_.staging.clear();
  operation_.inputs.clear();
  settled_.store(true, std::memory_order_release);
  finish(error_);
}

bool HetcclWork::isCompleted() {
  if (settled_.load(std::memory_order_acquire)) return true;
  if (!communicator_->reached(ticket_)) return false;
  settle();
  return true;
}

bool HetcclWork::isSuccess() const {
  return settled_.load(std::memory_order_acquire) && error_ == nullptr;
}

std::exception_ptr HetcclWork::exception() const {
  return settled_.load(std::memory_order_acquire) ? error_ : nullptr;
}

bool HetcclWork::wait(std::chrono::milliseconds timeout) {
  if (!settled_.load(std::memory_order_acquire)) {
    const bool limited = timeout > kNoTimeout;
    if (!communicator_->wait(ticket_, limited ? timeout : kForever)) {
      std::rethrow_exception(
          error_of({hetcclTimeout, c10::str("not complete after the ", timeout.count(),
                                            " ms that wait() was given; it is still in flight")}));
    }
    settle();
  }
  if (error_ != nullptr) std::rethrow_exception(error_);
  return true;
}

void HetcclWork::synchronize() {
  wait(kNoTimeout);
}

void HetcclWork::abort() {
  communicator_->abort("Work.abort() was called");
}

std::vector<at::Tensor> HetcclWork::result() {
  return operation_.outputs;
}

c10::intrusive_ptr<c10::ivalue::Future> HetcclWork::getFuture() {
  bool watch = false;
  {
    const std::lock_guard lock(settle_mutex_);
    if (future_) return future_;
    future_ =
        c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
    watch = !settled_.load(std::memory_order_relaxed);
  }
  if (!watch) {
    complete(*future_);
    return future_;
  }
  auto self = c10::intrusive_ptr<HetcclWork>::unsafe_reclaim_from_nonowning(this);
  watcher_->add([self] {
    std::ignore = self->communicator_->wait(self->ticket_, kForever);
    self->settle();
    self->complete(*self->future_);
  });
  return future_;
}

void HetcclWork::complete(c10::ivalue::Future& future) {
  if (error_ != nullptr) {
    future.setError(error_);
  } else {
    future.markCompleted(c10::IValue(operation_.outputs));
  }
}

uint64_t HetcclWork::getSequencenumber() const {
  return sequence_;
}

}  // namespace hetccl::torch_backend
