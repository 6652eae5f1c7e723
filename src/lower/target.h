// The target of lowering: a rank's device, and the reach of each of its peers. Both exec and the
// verifier get targets from here, so that the verifier proves the Code that runs.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "plan/plan.h"

namespace hetccl::lower {

/// The way in which one peer is reached.
struct Reach {
  int peer = -1;
  bool direct = true;       ///< the transport accesses the device's memory itself
  size_t ring_bytes = 0;    ///< per direction, the smaller of both ends' windows; or 0
  bool registered = false;  ///< direct only in calls whose memory is registered with the transport
  bool operator==(const Reach&) const = default;
  /// Whether the lane moves a message alone, without copies on streams.
  [[nodiscard]] bool needs_no_copy() const { return direct && ring_bytes == 0; }
};

/// A rank's device and its place in its cluster.
struct RankTraits {
  int local_rank = 0;
  bool host_memory = true;  ///< the device and its library use pinned memory as their own
  bool observed = false;    ///< a trace records the end of every step
  bool operator==(const RankTraits&) const = default;
};

/// One rank, with a lane for each peer of the plan, ascending.
struct Target : RankTraits {
  Target() = default;
  Target(const RankTraits& rank, std::vector<Reach> to) : RankTraits(rank), lanes(std::move(to)) {}

  std::vector<Reach> lanes;

  /// Index of the lane to `peer`; the number of lanes if there is none.
  [[nodiscard]] size_t lane_of(int peer) const;
  bool operator==(const Target&) const = default;
};

/// Bytes of a window of `bytes` that are for collectives; the rest is for messages.
[[nodiscard]] size_t collectives_window(size_t bytes);
/// Bytes that two ranks share for messages from rank to rank, besides a window of `window` bytes
/// for collectives. None if hosts reach the memory of a rank's device: such a rank may receive from
/// any rank, and cannot know in advance the place of a message.
[[nodiscard]] size_t message_window(size_t window, bool host_memory, bool other_host_memory);
/// The cut of messages that go through a ring of `ring_bytes` (0: no ring), within the limits of
/// `most`. Both ends see the same ring and cut alike.
[[nodiscard]] plan::Choice message_choice(const plan::Choice& most, size_t ring_bytes);
/// Reach of the peer of a message that the cluster's library carries: the channel carries only the
/// header.
[[nodiscard]] Reach reach_for_headers(int peer);

}  // namespace hetccl::lower
