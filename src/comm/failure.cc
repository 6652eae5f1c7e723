// Failures: a rank reports those that it sees, and ends everything in flight once the ranks agree
// on the cause.
#include "comm/dispatch.h"

namespace hetccl::comm {

void Dispatch::on_fault(const exec::Fault& fault) {
  if (fault.stall) return verdict_.ask_why(fault.status.code(), fault.rank, *fault.stall);
  report(fault.rank, fault.status);
}

// Where ranks of this cluster called different collectives, that is the cause. The library knows
// its own calls and the cluster's ranks only; all ranks are asked for the user's calls.
void Dispatch::report(int culprit, const Status& status) {
  if (executor_ == nullptr) return verdict_.report(status.code(), culprit, status.message());
  const auto between = fabric_.ccl().disagreement();
  if (!between) {
    return verdict_.report(status.code(), culprit,
                           format("rank %d: %s", rank(), status.message().c_str()));
  }
  const std::string call = position(between->number).call;
  const auto& members = membership_.cluster().ranks;
  const auto global = [&](int local) { return members[static_cast<size_t>(local)]; };
  verdict_.ask_why(Code::InvalidUsage, -1,
                   {between->number, call, "the ranks disagree on " + call,
                    format("ranks %d and %d passed different counts or roots",
                           global(between->rank), global(between->other))});
}

// A failure of this rank's own, before others see it close its connections.
void Dispatch::report_first(const Status& failure) {
  const bool own = failure.code() != Code::RemoteError && failure.code() != Code::Timeout;
  if (own && !context_.cancel->is_set() && !verdict_.failed()) report(rank(), failure);
}

OnException Dispatch::on_exception() {
  return [this](const Status& why) { report(rank(), why); };
}

bootstrap::Position Dispatch::position(uint64_t sequence) const {
  const auto record = recorder_.find(sequence);
  return {recorder_.called(), recorder_.ended(),
          record ? describe(record->signature, sequence) : ""};
}

void Dispatch::stop(Status status) {
  const Code code = status.code();
  const std::string cause = status.message();
  if (!verdict_.settle(std::move(status))) return;
  context_.cancel->set(Status(code, cause));
  dump_failure();
  // Not with `launch_mutex_`: who launches may be held up by what only this ends.
  fabric_.exclusively([&] {
    tell_failure(code, cause);
    if (Pairs* pairs = fabric_.pairs()) pairs->give_up(Status(code, cause));
    if (measuring_ != nullptr) measuring_->abort();
    if (executor_ != nullptr) executor_->abort();
  });
  context_.engine().notify();
}

Status Dispatch::known() {
  const Phase phase = context_.phase;
  if (phase == Phase::Opening) {
    return error(
        Code::InvalidUsage,
        "the communicator is still being set up: ask hetcclCommGetAsyncError until it is no "
        "longer hetcclInProgress");
  }
  return executor_ != nullptr ? Status() : failure();
}

Status Dispatch::check_ready() {
  if (context_.phase == Phase::Opening) return known();
  if (verdict_.failed()) return verdict_.await();
  if (context_.phase == Phase::Ready) return {};
  return error(Code::InvalidUsage, "rank %d: the communicator was finalized or destroyed", rank());
}

Status Dispatch::failure() {
  if (!verdict_.failed()) {
    const Phase phase = context_.phase;
    if (phase == Phase::Opening || phase == Phase::Closed) return {};
    const Status local = fabric_.async_error();
    if (local.ok()) return {};
    // Seen here first: results are worthless already, though the cause is not agreed yet.
    report(-1, local);
  }
  return verdict_.await();
}

}  // namespace hetccl::comm
