#include "work.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/jit_type.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <optional>
#include <set>

namespace hetccl::torch_backend {
namespace {

/// Copies results to their destinations; on a GPU on a stream of its own, so that nothing delays
/// them.
void run_copies(const Request& request) {
  if (request.copies.empty() && !request.conclude) return;
  std::optional<c10::StreamGuard> on_stream;
  if (!request.device.is_cpu()) {
    const c10::impl::VirtualGuardImpl device(request.device.type());
    on_stream.emplace(device.getStreamFromGlobalPool(request.device));
  }
  const at::AutoDispatchBelowADInplaceOrView raw;  // outputs may be leaves that require gradients
  for (const auto& [to, from] : request.copies) to.copy_(from);
  if (request.conclude) request.conclude();
}

/// The ranks that `text` names, as in "rank 3" and "ranks 1, 2".
std::set<size_t> find_ranks(const std::string& text) {
  std::set<size_t> ranks;
  size_t at = 0;
  while ((at = text.find("rank", at)) != std::string::npos) {
    at += 4;
    if (text.compare(at, 1, "s") == 0) ++at;
    for (size_t next = at + 1; next < text.size() && text[next - 1] == ' '; next = at + 2) {
      const size_t end = std::min(text.find_first_not_of("0123456789", next), text.size());
      if (end == next || end - next > 9) break;
      ranks.insert(std::stoul(text.substr(next, end - next)));
      at = end;
      if (text.compare(at, 2, ", ") != 0) break;
    }
  }
  return ranks;
}

/// A text that gives the global number of each rank that `text` names by its number in the group.
/// Empty if the numbers are equal.
std::string name_global_ranks(const std::string& text, const std::vector<uint64_t>& global_ranks) {
  constexpr size_t kMost = 8;
  std::string told;
  size_t n = 0;
  for (const size_t rank : find_ranks(text)) {
    if (rank >= global_ranks.size() || global_ranks[rank] == rank || ++n > kMost) continue;
    told += c10::str(told.empty() ? "; in this group rank " : ", rank ", rank, " is global rank ",
                     global_ranks[rank]);
  }
  return told;
}

}  // namespace

HetcclWork::HetcclWork(int rank, uint64_t sequence, std::shared_ptr<const GroupName> group,
                       Request request, std::shared_ptr<Communicator> communicator,
                       std::shared_ptr<Watcher> watcher)
    : Work(rank, request.type, request.title, request.inputs),
      communicator_(std::move(communicator)),
      watcher_(std::move(watcher)),
      request_(std::move(request)),
      rank_in_group_(rank),
      sequence_(sequence),
      group_(std::move(group)) {}

void HetcclWork::keep_until_complete() {
  if (!launched_ || settled() || !held_.load(std::memory_order_acquire)) return;
  auto rest = std::make_shared<Request>(std::move(request_));
  const auto copy = [rest, communicator = communicator_] {
    if (communicator->failure()) return;
    try {
      run_copies(*rest);
    } catch (const std::exception&) {
      // Ignore a failure of the device: the user has dropped this work, so nobody waits for it.
    }
  };
  watcher_->add({until_reached(), copy});
}

std::string HetcclWork::describe() const {
  const std::string title = request_.title;
  return c10::str("hetccl: ", title.substr(title.find(':') + 1), " (operation ", sequence_,
                  " of process group '", group_->id, "') on rank ", rank_in_group_);
}

std::exception_ptr HetcclWork::error_of(const Failure& failure) const {
  std::string text =
      c10::str(describe(), ": ", failure.text, " [", hetcclGetErrorString(failure.result), "]");
  text += name_global_ranks(text, group_->global_ranks);
  const c10::SourceLocation here{__func__, __FILE__, static_cast<uint32_t>(__LINE__)};
  if (failure.result == hetcclInvalidArgument) {
    return std::make_exception_ptr(c10::ValueError(here, text));
  }
  return std::make_exception_ptr(c10::DistBackendError(here, text));
}

std::exception_ptr HetcclWork::error_of_wait(std::chrono::milliseconds timeout) const {
  return error_of({hetcclTimeout, c10::str("not complete after the ", timeout.count(),
                                           " ms that wait() was given; it is still in flight")});
}

Request HetcclWork::take_held_locked() {
  Request taken;
  taken.inputs.swap(request_.inputs);
  taken.staging.swap(request_.staging);
  taken.copies.swap(request_.copies);
  taken.conclude.swap(request_.conclude);
  taken.members.swap(request_.members);
  held_.store(false, std::memory_order_release);
  return taken;
}

void HetcclWork::release_tensors() {
  if (!held_.load(std::memory_order_acquire)) return;
  Request done;  // freed outside the lock, as in `settle`
  const std::lock_guard lock(settle_mutex_);
  done = take_held_locked();
}

void HetcclWork::settle() {
  // Freed outside the lock: freeing a tensor may take the interpreter's lock, whose holder may wait
  // for ours.
  Request done;
  {
    const std::lock_guard lock(settle_mutex_);
    if (settled_.load(std::memory_order_relaxed)) return;
    if (const auto failed = failure()) {
      error_ = error_of(*failed);
      outcome_ = failed->result == hetcclTimeout ? c10d::WorkResult::TIMEOUT
                                                 : c10d::WorkResult::COMM_ERROR;
    } else {
      settle_contents();
    }
    done = take_held_locked();
    settled_.store(true, std::memory_order_release);
  }
  finish(error_);
}

void HetcclWork::settle_contents() {
  try {
    for (const auto& member : request_.members) {
      member->settle();
      if (member->error_ != nullptr) std::rethrow_exception(member->error_);
    }
    run_copies(request_);
  } catch (...) {
    error_ = std::current_exception();
    outcome_ = c10d::WorkResult::UNKNOWN;
  }
}

bool HetcclWork::isCompleted() {
  if (settled()) return true;
  if (!reached()) return false;
  settle();
  return true;
}

bool HetcclWork::isSuccess() const {
  return settled() && error_ == nullptr;
}

std::exception_ptr HetcclWork::exception() const {
  return settled() ? error_ : nullptr;
}

void HetcclWork::check() const {
  if (settled() && error_ != nullptr) std::rethrow_exception(error_);
}

int HetcclWork::sourceRank() const {
  TORCH_CHECK_VALUE(request_.source != nullptr, describe(), " is no receive from any rank");
  TORCH_CHECK_VALUE(settled(), describe(), " has come from nobody yet: wait() first");
  return *request_.source;
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
  return request_.outputs;
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
    if (!settled && awaited_.size() > 1) return future;  // the watcher already has this work
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
  // Safe without the lock: a future, once made, is never replaced.
  for (const Promise promise : awaited) keep(promise, *futures_[promise]);
}

void HetcclWork::keep(Promise promise, c10::ivalue::Future& future) const {
  if (promise == kOutcome) {
    future.markCompleted(c10::IValue(static_cast<int64_t>(outcome_)));
  } else if (error_ != nullptr) {
    future.setError(error_);
  } else {
    future.markCompleted(c10::IValue(request_.outputs));
  }
}

uint64_t HetcclWork::getSequencenumber() const {
  return sequence_;
}

}  // namespace hetccl::torch_backend
