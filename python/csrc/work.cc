#include "work.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/jit_type.h>
#include <c10/util/Exception.h>

#include <algorithm>

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
  const auto copy = [rest, communicator = communicator_] {
    if (!communicator->failure()) run_copies(rest->copies);
  };
  watcher_->add({until_reached(), copy});
}

void HetcclWork::launch(std::chrono::milliseconds timeout, bool blocking) {
  for (const auto& member : operation_.members) {
    tickets_.insert(tickets_.end(), member->tickets_.begin(), member->tickets_.end());
  }
  launched_ = !operation_.members.empty();
  Ticket last;
  for (const Launch& call : operation_.launches) {
    const auto failure = communicator_->launch(call, operation_.route, timeout, blocking, last);
    if (!failure) {
      launched_ = true;
      continue;
    }
    if (last.number != 0) tickets_.push_back(last);
    const std::exception_ptr error = error_of(*failure);
    finish(error);
    std::rethrow_exception(error);
  }
  operation_.launches.clear();
  if (last.number != 0) tickets_.push_back(last);
  if (blocking && reached()) settle();
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

bool HetcclWork::reached() const {
  return std::all_of(tickets_.begin(), tickets_.end(), Communicator::reached);
}

std::function<void()> HetcclWork::until_reached() const {
  // The communicator owns the streams.
  return [communicator = communicator_, tickets = tickets_] {
    std::ignore = Communicator::wait_all(tickets, kForever);
  };
}

void HetcclWork::settle() {
  // Freed outside the lock: a tensor's end may take the interpreter's lock, whose holder may be
  // waiting for ours.
  Operation done;
  {
    const std::lock_guard lock(settle_mutex_);
    if (settled_.load(std::memory_order_relaxed)) return;
    if (const auto failure = communicator_->failure()) {
      error_ = error_of(*failure);
      outcome_ = failure->result == hetcclTimeout ? c10d::WorkResult::TIMEOUT
                                                  : c10d::WorkResult::COMM_ERROR;
    } else {
      settle_contents();
    }
    done.inputs.swap(operation_.inputs);
    done.staging.swap(operation_.staging);
    done.copies.swap(operation_.copies);
    done.members.swap(operation_.members);
    settled_.store(true, std::memory_order_release);
  }
  finish(error_);
}

void HetcclWork::settle_contents() {
  try {
    for (const auto& member : operation_.members) {
      member->settle();
      if (member->error_ != nullptr) std::rethrow_exception(member->error_);
    }
    run_copies(operation_.copies);
  } catch (...) {
    error_ = std::current_exception();
    outcome_ = c10d::WorkResult::UNKNOWN;
  }
}

bool HetcclWork::isCompleted() {
  if (settled_.load(std::memory_order_acquire)) return true;
  if (!reached()) return false;
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
    if (!Communicator::wait_all(tickets_, limited ? timeout : kForever)) {
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

void HetcclWork::blockCurrentStream() {
  wait(kNoTimeout);
}

void HetcclWork::abort() {
  communicator_->abort("Work.abort() was called");
}

std::vector<at::Tensor> HetcclWork::result() {
  return operation_.outputs;
}

HetcclWork::FuturePtr HetcclWork::getFuture() {
  return promise(kOutputs);
}

HetcclWork::FuturePtr HetcclWork::getFutureResult() {
  return promise(kOutcome);
}

HetcclWork::FuturePtr HetcclWork::promise(Promise promise) {
  FuturePtr future;
  bool settled = false;
  {
    const std::lock_guard lock(settle_mutex_);
    if (futures_[promise]) return futures_[promise];
    const c10::TypePtr outputs = c10::ListType::create(c10::TensorType::get());
    future = c10::make_intrusive<c10::ivalue::Future>(promise == kOutputs ? outputs
                                                                          : c10::IntType::get());
    futures_[promise] = future;
    settled = settled_.load(std::memory_order_relaxed);
    if (!settled) awaited_.push_back(promise);
    if (!settled && awaited_.size() > 1) return future;  // the watcher has this work already
  }
  if (settled) {
    keep(promise, *future);
    return future;
  }
  auto self = c10::intrusive_ptr<HetcclWork>::unsafe_reclaim_from_nonowning(this);
  const auto settle_and_keep = [self] {
    self->settle();
    self->keep_promises();
  };
  watcher_->add({until_reached(), settle_and_keep});
  return future;
}

void HetcclWork::keep_promises() {
  std::vector<Promise> awaited;
  {
    const std::lock_guard lock(settle_mutex_);
    awaited.swap(awaited_);
  }
  // Nobody replaces a future once it is made.
  for (const Promise promise : awaited) keep(promise, *futures_[promise]);
}

void HetcclWork::keep(Promise promise, c10::ivalue::Future& future) const {
  if (promise == kOutcome) {
    future.markCompleted(c10::IValue(static_cast<int64_t>(outcome_)));
  } else if (error_ != nullptr) {
    future.setError(error_);
  } else {
    future.markCompleted(c10::IValue(operation_.outputs));
  }
}

uint64_t HetcclWork::getSequencenumber() const {
  return sequence_;
}

}  // namespace hetccl::torch_backend
