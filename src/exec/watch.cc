#include "exec/watch.h"

#include <algorithm>

namespace hetccl::exec {
namespace {

std::chrono::milliseconds::rep time_given(const Call& call) {
  return std::chrono::round<std::chrono::milliseconds>(call.deadline - call.launched).count();
}

Fault fault_of_departed(const Operation& message, int peer) {
  return {error(ErrorCode::RemoteError, "%s cannot complete: rank %d has left the communicator",
                describe(message.message).c_str(), peer),
          peer,
          {}};
}

Fault fault_of_late(Operation& op) {
  const Message& message = op.message;
  const std::string why = !op.started().reached(1)   ? "the stream has not come to it"
                          : message.peer == kAnyRank ? "no rank has sent it"
                          : message.send ? format("rank %d has not received it", message.peer)
                                         : format("rank %d has not sent it", message.peer);
  return {error(ErrorCode::Timeout, "%s timed out after %lld ms: %s", describe(message).c_str(),
                static_cast<long long>(time_given(op.call)), why.c_str()),
          std::max(message.peer, -1),
          {}};
}

// The time that a mark's flag may take to be visible, and to be written.
constexpr auto kTelling = std::chrono::milliseconds(10);
constexpr auto kSettling = std::chrono::seconds(1);

std::string list_of(const std::vector<int>& ranks) {
  std::string text;
  for (const int rank : ranks) text += (text.empty() ? "" : ", ") + std::to_string(rank);
  return text;
}

// "send to rank 1", "ccl_reduce".
std::string name_of(const lower::Code& code, const lower::Instruction& one) {
  using lower::QueueKind;
  const QueueKind kind = lower::kind_of(one.queue);
  const bool message = kind == QueueKind::Send || kind == QueueKind::Recv;
  return message ? lower::name_of(code, one.queue) : lower::info_of(one.op).name;
}

}  // namespace

Status Watch::library_status() const {
  Status status = options_.ccl == nullptr ? Status() : options_.ccl->async_error();
  if (status.ok() && options_.marks != nullptr && options_.marks->failed()) {
    status = options_.marks->failure();
  }
  return status;
}

std::optional<Fault> Watch::check(TimePoint now) {
  if (const auto broken = wire_.find_broken()) return fault_of(*broken);
  Status library = library_status();
  if (!library.ok()) return Fault{std::move(library), -1, {}};
  if (auto fault = check_departures(now)) return fault;
  if (auto fault = check_messages(now)) return fault;
  if (now < next_deadline_check_) return {};
  next_deadline_check_ = now + std::chrono::milliseconds(1);
  if (auto fault = check_message_deadlines(now)) return fault;
  return check_deadlines(now);
}

// If messages do not fit together, ranks usually made different calls, which this names.
Fault Watch::fault_of(const Wire::Broken& broken) {
  const Status& status = *broken.status;
  const Operation& op = *broken.operation;
  if (op.is_message()) {
    const bool left = options_.departures != nullptr && options_.departures->has_left(broken.peer);
    return left ? fault_of_departed(op, broken.peer) : Fault{status, broken.peer, {}};
  }
  if (status.code() != ErrorCode::InvalidUsage) return {status, broken.peer, {}};
  const Call& call = op.call;
  Stall stalled;
  stalled.sequence = call.sequence;
  stalled.call = describe(call.signature, call.sequence);
  stalled.what = "the ranks disagree on " + stalled.call;
  stalled.detail = status.message();
  return {status, broken.peer, std::move(stalled)};
}

// A rank may leave while others finish operations that it has completed, but operations that it has
// not called cannot complete. The others get a grace period before everything fails.
std::optional<Fault> Watch::check_departures(TimePoint now) {
  if (options_.departures == nullptr || in_flight_.empty()) return {};
  const uint64_t first = options_.departures->first_incomplete();
  if (first == UINT64_MAX) return {};
  Operation& op = in_flight_.at(in_flight_.oldest());
  if (op.call.sequence < first || op.ended()) return {};
  if (!abandoned_ || abandoned_->sequence != op.call.sequence) {
    abandoned_ = op.call;
    abandoned_since_ = now;
  }
  if (now - abandoned_since_ < options_.departure_grace) return {};
  return stall(ErrorCode::RemoteError, *abandoned_, "cannot complete", options_.departures->rank());
}

// Returns whether `order`'s peer left more than the grace period ago; until then its last messages
// may be received.
bool Watch::is_gone(MessageOrder& order, TimePoint now) const {
  if (options_.departures == nullptr || !options_.departures->has_left(order.peer)) return false;
  if (order.left == TimePoint{}) order.left = now;
  return now - order.left >= options_.departure_grace;
}

std::optional<Fault> Watch::check_messages(TimePoint now) {
  if (messages_.calls.load() == 0) return {};
  for (MessageOrder* order : messages_.all()) {
    if (order->in_flight.empty()) continue;
    Operation& first = order->in_flight.at(order->in_flight.oldest());
    // The library may hold a sender's data until the receiver takes it.
    const bool waits = first.outstanding > 0 || (order->send && first.awaits_peer());
    if (waits && is_gone(*order, now)) return fault_of_departed(first, order->peer);
  }
  return check_any_source(now);
}

std::optional<Fault> Watch::check_any_source(TimePoint now) {
  const Operation* unmatched = nullptr;
  for (Operation* op : messages_.from_any()) {
    const int peer = op->message.peer;
    if (peer != kAnyRank && op->outstanding > 0 && is_gone(messages_.of(peer, false), now))
      return fault_of_departed(*op, peer);
    if (peer == kAnyRank && unmatched == nullptr) unmatched = op;
  }
  if (unmatched == nullptr) return {};
  const auto& orders = messages_.all();
  const bool any_left = std::any_of(orders.begin(), orders.end(), [&](MessageOrder* order) {
    return !order->send && !is_gone(*order, now);
  });
  if (any_left) return {};
  return Fault{error(ErrorCode::RemoteError,
                     "%s cannot complete: all other ranks have left the communicator",
                     describe(unmatched->message).c_str()),
               -1,
               {}};
}

std::optional<Fault> Watch::check_library(const Operation& message) {
  const auto& order = static_cast<const MessageOrder&>(*message.order);
  const Status status = order.library->pair->async_error();
  if (status.ok()) return {};
  return Fault{status.with(format("messages with rank %d", order.peer)), order.peer, {}};
}

std::optional<Fault> Watch::check_message_deadlines(TimePoint now) {
  if (messages_.calls.load() == 0) return {};
  for (MessageOrder* order : messages_.all()) {
    if (order->in_flight.empty()) continue;
    const Operation& last = order->in_flight.at(order->in_flight.end() - 1);
    if (!last.by_library) continue;
    if (auto fault = check_library(last)) return fault;
  }
  std::optional<Fault> late;
  messages_.for_each_in_flight([&](Operation& op) {
    if (!late && now >= op.call.deadline && op.awaits_peer()) late = fault_of_late(op);
  });
  return late;
}

std::optional<Fault> Watch::check_deadlines(TimePoint now) {
  for (uint64_t n = in_flight_.oldest(), end = in_flight_.end(); n < end; ++n) {
    Operation& op = in_flight_.at(n);
    if (now < op.call.deadline || op.ended()) continue;
    if (may_have_ended(n, now)) return {};
    return stall(ErrorCode::Timeout, op.call,
                 format("timed out after %lld ms", static_cast<long long>(time_given(op.call))),
                 -1);
  }
  return {};
}

// Returns whether a call may have ended unseen: its flag may be written late or just now. The time
// is bounded, though its writer may block in the driver.
bool Watch::may_have_ended(uint64_t number, TimePoint now) {
  EndMarks* marks = in_flight_.at(number).marks;
  if (marks == nullptr) return false;
  const bool settled = marks->settled(in_flight_.at(number).mark);
  if (!settled) marks->ask();
  if (!overdue_ || overdue_->number != number || overdue_->settled != settled) {
    overdue_ = Overdue{number, settled, now};
  }
  return now - overdue_->since < (settled ? kTelling : kSettling);
}

// Returns whether the user's stream has reached it, as far as this rank knows.
bool Watch::has_begun(uint64_t number) {
  Operation& op = in_flight_.at(number);
  return !op.tells_start() || op.started().reached(1);
}

// Describes the first incomplete slice and its first incomplete step, as far as this rank knows.
std::string Watch::place_of(uint64_t number) {
  Operation& op = in_flight_.at(number);
  const lower::Code& code = *op.code;
  if (code.one_library_call) return "its cluster's library, " + options_.library;
  if (!has_begun(number)) return "its stream has not come to it";
  std::optional<lower::Issue> first = wire_.first_incomplete(op);
  const auto order = [](lower::Issue one) { return std::pair(one.slice, one.index); };
  for (uint32_t i = code.body; i < code.epilogue; ++i) {
    const lower::Instruction& one = code.list[i];
    if (!lower::is_stream(one.queue) || one.done == lower::kNoSync) continue;
    const uint32_t done = op.flag(one.done).word.load(std::memory_order_acquire);
    if (done < op.n_slices && (!first || order({done, i}) < order(*first))) {
      first = lower::Issue{done, i};
    }
  }
  if (!first) return "its last steps";
  const lower::Instruction& one = code.list[first->index];
  return format("slice %u of %u, step %u (%s)", first->slice + 1, op.n_slices, unsigned{one.step},
                name_of(code, one).c_str());
}

std::string Watch::describe_oldest() {
  if (in_flight_.empty()) return "";
  const uint64_t oldest = in_flight_.oldest();
  const Call& call = in_flight_.at(oldest).call;
  return describe(call.signature, call.sequence) + ": " + place_of(oldest);
}

// `departed`: a rank that has left, or -1.
Fault Watch::stall(ErrorCode code, const Call& call, const std::string& how, int departed) {
  const uint64_t oldest = in_flight_.oldest();
  const bool begun = has_begun(oldest);
  const std::vector<int> late = begun ? wire_.awaited_peers() : std::vector<int>();
  Stall stalled;
  stalled.sequence = call.sequence;
  stalled.call = describe(call.signature, call.sequence);
  stalled.what = stalled.call + " " + how;
  stalled.detail = departed >= 0  ? format("rank %d has left the communicator", departed)
                   : !begun       ? place_of(oldest)
                   : late.empty() ? "it waits for ranks of its own cluster"
                                  : "it waits for messages to or from rank " + list_of(late);
  if (begun) stalled.detail += "; it is at " + place_of(oldest);
  const int culprit = departed < 0 && late.size() == 1 ? late[0] : departed;
  return {Status(code, stalled.what + ": " + stalled.detail), culprit, std::move(stalled)};
}

Fault Watch::explain(Fault fault) {
  if (fault.stall || !abandoned_) return fault;
  return stall(ErrorCode::RemoteError, *abandoned_, "cannot complete", options_.departures->rank());
}

}  // namespace hetccl::exec
