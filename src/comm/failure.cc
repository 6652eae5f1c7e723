// Failures: a communicator reports those that it sees, and ends everything in flight once the ranks
// agree on the cause.
#include "comm/communicator.h"

namespace hetccl::comm {

void Communicator::on_fault(const exec::Fault& fault) {
  if (fault.stall) return verdict_.ask_why(fault.status.code(), fault.rank, *fault.stall);
  report_own(fault.rank, fault.status);
}

// Where ranks of this cluster called different collectives, that is the cause. The library knows
// its own calls and the cluster's ranks only; all ranks are asked for the user's calls.
void Communicator::report_own(int culprit, const Status& status) {
  const auto between = ccl_->disagreement();
  if (!between) {
    return verdict_.report(status.code(), culprit,
                           format("rank %d: %s", rank(), status.message().c_str()));
  }
  const std::string call = position(between->number).call;
  const auto& members =
      topology().clusters()[static_cast<size_t>(topology().cluster_of(rank()))].ranks;
  const auto global = [&](int local) { return members[static_cast<size_t>(local)]; };
  verdict_.ask_why(Code::InvalidUsage, -1,
                   {between->number, call, "the ranks disagree on " + call,
                    format("ranks %d and %d passed different counts or roots",
                           global(between->rank), global(between->other))});
}

// A failure of this rank's own, before others see it close its connections.
void Communicator::report_first(const Status& failure) {
  const bool own = failure.code() != Code::RemoteError && failure.code() != Code::Timeout;
  if (own && !cancel_->is_set() && !verdict_.failed()) report_own(rank(), failure);
}

void Communicator::on_exception(const Status& why) {
  if (executor_ != nullptr) return report_own(rank(), why);
  if (session_ != nullptr) return verdict_.report(why.code(), rank(), why.message());
  verdict_.replace(why);  // nobody else knows this communicator yet
  phase_.store(Phase::Closed, std::memory_order_release);
}

void Communicator::on_left(int who, uint64_t called) {
  departures_.add(who, called);
  if (phase_.load(std::memory_order_acquire) != Phase::Opening) {
    if (tuning_ != nullptr) tuning_->on_left(who);
    if (pairs_ != nullptr) pairs_->on_left(who);
    return;
  }
  // A rank that is still setting up waits for it in vain.
  cancel_->set(
      error(Code::RemoteError, "rank %d left while the communicator was being set up", who));
}

bootstrap::Position Communicator::position(uint64_t sequence) const {
  const auto record = recorder_.find(sequence);
  return {recorder_.called(), recorder_.ended(),
          record ? describe(record->signature, sequence) : ""};
}

void Communicator::on_failure(const bootstrap::Failure& failure) {
  stop(Status(failure.code, failure.reason));
}

void Communicator::stop(Status status) {
  const Code code = status.code();
  const std::string cause = status.message();
  if (!verdict_.settle(std::move(status))) return;
  cancel_->set(Status(code, cause));
  dump_failure();
  // Not with `launch_mutex_`: who launches may be held up by what only this ends.
  runtime_.engine().exclusively([&] {
    tell_failure(code, cause);
    if (pairs_ != nullptr) pairs_->give_up(Status(code, cause));
    if (measuring_ != nullptr) measuring_->abort();
    if (executor_ != nullptr) executor_->abort();
  });
  runtime_.engine().notify();
}

Status Communicator::failure() {
  if (!verdict_.failed()) {
    const Phase phase = phase_.load(std::memory_order_acquire);
    if (phase == Phase::Opening || phase == Phase::Closed) return {};
    Status local = ccl_->async_error();
    if (local.ok()) local = pairs_->async_error();
    if (local.ok()) return {};
    // Seen here first: results are worthless already, though the cause is not agreed yet.
    report_own(-1, local);
  }
  return verdict_.await();
}

}  // namespace hetccl::comm
