#include "comm/communicator.h"

namespace hetccl::comm {

Communicator::~Communicator() {
  const Status why = error(Code::Aborted, "the communicator was destroyed");
  context_.cancel->set(why);
  chores_.wait();
  fabric_.stop();
  if (!dispatch_.idle()) dispatch_.stop(why);
  const bool ended = dispatch_.wait_until_idle();
  if (membership_.joined()) {
    membership_.session().leave(dispatch_.called());
    Channels::forget_visitors(context_.runtime, membership_.session());
  }
  dispatch_.write_trace();
  dispatch_.close(ended);
  fabric_.close(ended);
}

bool Communicator::in_progress() const {
  const Phase phase = context_.phase;
  return phase == Phase::Opening || phase == Phase::Finalizing;
}

Status Communicator::finish_by(TimePoint deadline) {
  if (context_.phase == Phase::Opening) {
    context_.cancel->set(
        error(Code::Aborted, "it destroyed the communicator while that was being set up"));
    chores_.wait();
    if (context_.phase != Phase::Ready) return {};
  }
  chores_.wait();
  return drain(deadline);
}

Status Communicator::drain(TimePoint deadline) {
  if (context_.phase == Phase::Closed) return dispatch_.failure();
  Status status = dispatch_.finish();
  fabric_.pairs()->stop(deadline);  // they agree by notes, of which there are none after that
  membership_.session().leave(dispatch_.called());
  return status;
}

Status Communicator::finalize() {
  HETCCL_TRY(dispatch_.check_ready());
  if (blocking()) return finish();
  context_.phase = Phase::Finalizing;
  const Status posted = chores_.post([this] { static_cast<void>(drain(TimePoint::max())); });
  return posted.ok() ? posted : finish();
}

void Communicator::shut_down(TimePoint deadline) {
  Verdict& verdict = membership_.verdict();
  auto& engine = context_.engine();
  const auto busy = [&] {
    const Phase phase = context_.phase;
    return phase == Phase::Opening || (phase != Phase::Closed && !dispatch_.idle());
  };
  engine.notify();
  engine.wait([&] { return !busy() || verdict.failed(); }, deadline);
  if (busy() || verdict.failed()) {
    abort("its process exited before the communicator's work was complete");
  } else {
    static_cast<void>(finish_by(deadline));
  }
  // A thread inside a vendor's library does not stand the end of its process.
  if (context_.phase == Phase::Closed && fabric_.pairs() != nullptr)
    fabric_.pairs()->stop(deadline);
  dispatch_.write_trace();
}

void Communicator::abort(const std::string& why) {
  if (context_.phase == Phase::Opening) {
    context_.cancel->set(Status(Code::Aborted, why));
    chores_.wait();
  }
  const Phase phase = context_.phase;
  if (phase == Phase::Opening || phase == Phase::Closed) return;
  const int rank = membership_.rank();
  const std::string cause = format("rank %d: %s", rank, why.c_str());
  membership_.verdict().report(Code::Aborted, rank, cause);
  // Channels close when the others know why: else they may report a lost connection first.
  membership_.verdict().wait(std::chrono::milliseconds(1000));
  dispatch_.stop(Status(Code::Aborted, cause));
  chores_.wait();
  // No memory of the user is touched once nothing is in flight.
  dispatch_.wait_until_idle();
}

void Communicator::on_exception(const Status& why) {
  if (membership_.joined()) return dispatch_.report(membership_.rank(), why);
  membership_.verdict().replace(why);  // nobody else knows this communicator yet
  context_.phase = Phase::Closed;
}

}  // namespace hetccl::comm
