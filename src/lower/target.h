// What lowering knows of a rank: its device, and how each of its peers is reached. What is proven
// and what runs are lowered for the same targets, so both make them here.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "plan/plan.h"

namespace hetccl::lower {

/// How one peer is reached.
struct Reach {
  int peer = -1;
  bool direct = true;       ///< the transport reads and writes the device's memory itself
  size_t ring_bytes = 0;    ///< of each direction of the window, in the smaller view of both; or 0
  bool registered = false;  ///< direct in calls alone whose memory the transport knows
  bool operator==(const Reach&) const = default;
  /// Whether only the lane moves a message, and streams copy nothing.
  [[nodiscard]] bool needs_no_copy() const { return direct && ring_bytes == 0; }
};

/// A rank's device and its place in its cluster.
struct RankTraits {
  int local_rank = 0;
  bool host_memory = true;  ///< the device works on pinned memory as on its own, its library too
  bool observed = false;    ///< a trace wants to see every step end
  bool operator==(const RankTraits&) const = default;
};

/// One rank, with a lane for each peer of the plan, ascending.
struct Target : RankTraits {
  Target() = default;
  Target(const RankTraits& rank, std::vector<Reach> to) : RankTraits(rank), lanes(std::move(to)) {}

  std::vector<Reach> lanes;

  /// The index of the lane to `peer`; the number of lanes if there is none.
  [[nodiscard]] size_t lane_of(int peer) const;
  bool operator==(const Target&) const = default;
};

/// How many of a window's `bytes` collectives get; messages get the rest.
[[nodiscard]] size_t collectives_window(size_t bytes);
/// The bytes that two ranks share for messages from rank to rank, beside a window of `window` bytes
/// for collectives. None if hosts reach the memory of a rank's device: such a rank may receive from
/// any rank, and cannot say in advance where a message is to lie.
[[nodiscard]] size_t message_window(size_t window, bool host_memory, bool other_host_memory);
/// How messages are cut that go through a ring of `ring_bytes`, 0 if through none: at most as
/// `most` says. Both ends see the same ring, and cut alike.
[[nodiscard]] plan::Choice message_choice(const plan::Choice& most, size_t ring_bytes);
/// How the peer of a message that the cluster's library carries is reached: a channel carries the
/// message's header alone.
[[nodiscard]] Reach reach_for_headers(int peer);

}  // namespace hetccl::lower
