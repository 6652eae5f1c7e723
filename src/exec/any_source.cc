// Receives that name no rank: each takes the first message of its tag, from whichever rank, that no
// receive takes which was called before it. A receive that names a rank and was called after it
// waits until it is known that the rank's next message is not one for it.
#include <algorithm>

#include "exec/point_to_point.h"

namespace hetccl::exec {

bool PointToPoint::precedes(const Place& one, const Place& other) {
  if (one.batch != other.batch) return one.batch->order < other.batch->order;
  return one.index < other.index;
}

bool PointToPoint::takes(const Place& any, const transport::MessageInfo& incoming) {
  return transit_of(any).message.tag == incoming.step;
}

bool PointToPoint::match_any() {
  const size_t before = any_.size();
  std::erase_if(any_, [this](const Place& any) {
    return any.batch->started().reached(1) && !any.batch->given_up && match(any);
  });
  return any_.size() != before;
}

// Ranks are asked in turns, so that one that sends all the time holds up no other.
bool PointToPoint::match(const Place& any) {
  for (size_t k = 0; k < met_.size(); ++k) {
    const size_t at = (next_any_ + k) % met_.size();
    Lane& lane = *met_[at];
    if (lane.send || lane.channel == nullptr || lane.posting > 0) continue;
    if (!lane.messages.empty() && precedes(lane.messages.front(), any)) continue;
    const auto incoming = lane.channel->incoming();
    if (!incoming || !takes(any, *incoming)) continue;
    Message& message = transit_of(any).message;
    message.peer = lane.peer;
    if (message.source != nullptr) *message.source = lane.peer;
    lane.messages.push_front(any);
    next_any_ = at + 1;
    return true;
  }
  return false;
}

bool PointToPoint::is_held(Lane& lane, const Place& place) const {
  if (any_.empty() || transit_of(place).posted > 0) return false;
  const auto incoming = lane.channel->incoming();
  return std::any_of(any_.begin(), any_.end(), [&](const Place& any) {
    const bool waits = any.batch->started().reached(1) && precedes(any, place);
    return waits && (!incoming || takes(any, *incoming));
  });
}

bool PointToPoint::check_senders(TimePoint now) {
  const bool any_left = std::any_of(
      met_.begin(), met_.end(), [&](Lane* lane) { return !lane->send && !is_gone(*lane, now); });
  if (any_left) return true;
  fault({error(Code::RemoteError, "%s cannot complete: all other ranks have left the communicator",
               describe(transit_of(any_.front()).message).c_str()),
         -1,
         {}});
  return false;
}

}  // namespace hetccl::exec
