#include "lower/target.h"

#include <algorithm>

#include "lower/ring.h"

namespace hetccl::lower {
namespace {

// Messages from rank to rank have a window of their own, smaller than that of collectives by this
// factor.
constexpr size_t kWindowParts = 4;
constexpr size_t kPage = 4096;
// Slices per ring of messages: one that is written, one that is read, and one because the sender
// learns late that a slice has been read. More slices would be shorter, and each costs 17 us of its
// stream.
constexpr size_t kSlicesOfRing = 3;

}  // namespace

size_t Target::lane_of(int peer) const {
  const auto lane = std::lower_bound(lanes.begin(), lanes.end(), peer,
                                     [](const Reach& one, int to) { return one.peer < to; });
  const bool found = lane != lanes.end() && lane->peer == peer;
  return found ? static_cast<size_t>(lane - lanes.begin()) : lanes.size();
}

size_t collectives_window(size_t bytes) {
  return bytes / (kWindowParts + 1) * kWindowParts;
}

size_t message_window(size_t window, bool host_memory, bool other_host_memory) {
  if (host_memory || other_host_memory) return 0;
  return window / kWindowParts / kPage * kPage;
}

plan::Choice message_choice(const plan::Choice& most, size_t ring_bytes) {
  plan::Choice choice = most;
  const size_t part = ring_bytes / kSlicesOfRing / Ring::kGrain * Ring::kGrain;
  if (part > 0) choice.slice_bytes = std::min<size_t>(most.slice_bytes, part);
  return choice;
}

Reach reach_for_headers(int peer) {
  return {peer, false, 0};
}

}  // namespace hetccl::lower
