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
    InFlight& others = lane.operations;
    const bool later =
        others.empty() || precedes(any, static_cast<Transit&>(others.at(others.oldest())));
    const auto incoming = later ? lane.channel->incoming() : std::nullopt;
    if (!incoming || !takes(any.message, *incoming) || wire_.is_receiving(lane.peer)) continue;
    any.message.peer = lane.peer;
    if (any.message.source != nullptr) *any.message.source = lane.peer;
    wire_.receive_first(lane.peer, any);
    next_any_ = at + 1;
    return true;
  }
  return false;
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
