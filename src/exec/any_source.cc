// Receives that name no rank: each takes the first message of its tag, from whichever rank, that no
// receive takes which was called before it. A receive that names a rank and was called after it
// waits until it is known that the rank's next message is not one for it.
#include <algorithm>

#include "exec/point_to_point.h"

namespace hetccl::exec {
namespace {

bool takes(const Message& any, const transport::MessageInfo& incoming) {
  return any.tag == incoming.step;
}

}  // namespace

bool PointToPoint::match_any() {
  const size_t before = any_.size();
  std::erase_if(any_, [this](Transit* any) {
    return any->started().reached(1) && !any->given_up && match(*any);
  });
  return any_.size() != before;
}

// Ranks are asked in turns, so that one that sends all the time holds up no other.
bool PointToPoint::match(Transit& any) {
  for (size_t k = 0; k < met_.size(); ++k) {
    const size_t at = (next_any_ + k) % met_.size();
    Lane& lane = *met_[at];
    if (lane.send || lane.channel == nullptr) continue;
    const auto incoming = lane.channel->incoming();
    if (!incoming || !takes(any.message, *incoming) || !may_go_first(any, lane)) continue;
    if (!wire_.receive_next(lane.peer, any)) return false;
    any.message.peer = lane.peer;
    if (any.message.source != nullptr) *any.message.source = lane.peer;
    next_any_ = at + 1;
    return true;
  }
  return false;
}

// Operations that are complete, though not retired yet, are not in its way.
bool PointToPoint::may_go_first(const Transit& any, Lane& lane) {
  if (wire_.is_receiving(lane.peer)) return false;
  const uint64_t next = wire_.next_received(lane.peer);
  if (next == lane.operations.end()) return true;
  return precedes(any, static_cast<Transit&>(lane.operations.at(next)));
}

bool PointToPoint::is_held(const Lane& lane, const Transit& transit) const {
  if (any_.empty()) return false;
  const auto incoming = lane.channel->incoming();
  return std::any_of(any_.begin(), any_.end(), [&](Transit* any) {
    const bool waits = any->started().reached(1) && precedes(*any, transit);
    return waits && (!incoming || takes(any->message, *incoming));
  });
}

bool PointToPoint::check_senders(TimePoint now) {
  const bool any_left = std::any_of(
      met_.begin(), met_.end(), [&](Lane* lane) { return !lane->send && !is_gone(*lane, now); });
  if (any_left) return true;
  fault({error(Code::RemoteError, "%s cannot complete: all other ranks have left the communicator",
               describe(any_.front()->message).c_str()),
         -1,
         {}});
  return false;
}

}  // namespace hetccl::exec
