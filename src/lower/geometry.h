// How a call is cut for a target: its geometry.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lower/target.h"
#include "plan/plan.h"

namespace hetccl::lower {

/// Where the blocks of an uneven call's buffer lie, in elements: an entry for each of the plan's
/// blocks. Empty: all are as long as the call's count, one behind the other.
struct Layout {
  std::span<const uint64_t> counts, offsets;
};

/// The bit, in a set of kinds of arithmetic, of steps that average or scale (plan::Step), with an
/// encoded operand or without.
[[nodiscard]] constexpr uint8_t arithmetic_of(bool average, bool scale, bool encoded) {
  return static_cast<uint8_t>(
      1U << ((average ? 1U : 0U) + (scale ? 2U : 0U) + (encoded ? 4U : 0U)));
}
inline constexpr uint8_t kAllArithmetic = 0xff;

/// What of a call decides its Code.
struct CallShape {
  DataType type{};
  uint64_t count = 0;  ///< elements of a block; of the longest where the call is uneven
  Layout input{}, output{};
  plan::Choice choice{};
  uint8_t by_host = 0;      ///< arithmetic (`arithmetic_of`) that the device cannot do
  bool registered = false;  ///< transports know all memory that its messages may move

  [[nodiscard]] bool is_uneven() const { return !input.counts.empty() || !output.counts.empty(); }
};

/// How a call is cut and how its messages go. Both ends of a message compute the same route.
struct Geometry {
  /// How the messages of a lane use its rings.
  struct RingUse {
    bool send_in_ring = false, recv_in_ring = false;
    uint32_t unread = 0;  ///< slices of received messages that the ring keeps beside the current
    bool operator==(const RingUse&) const = default;
  };
  uint64_t slice_elements = 1;
  uint32_t n_slices = 1;
  uint32_t n_slots = 1;
  uint32_t depth = 0;
  bool short_call = false;   ///< one slice and few bytes: one stream runs it
  bool own_buffers = false;  ///< it takes so little that it waits for no other call's
  bool brief = false;        ///< it moves so little that a launch takes longer
  uint8_t by_host = 0;       ///< as in CallShape
  bool registered = false;   ///< as in CallShape
  std::vector<RingUse> lanes;

  /// Whether slots of scratch and staging memory are used again.
  [[nodiscard]] bool reuses_slots() const { return n_slices > n_slots; }
  /// Whether the same Code serves both.
  [[nodiscard]] bool same_code(const Geometry& other) const {
    return n_slots == other.n_slots && depth == other.depth && short_call == other.short_call &&
           own_buffers == other.own_buffers && brief == other.brief && by_host == other.by_host &&
           registered == other.registered && reuses_slots() == other.reuses_slots() &&
           lanes == other.lanes;
  }
};

/// Slices that a collective has at most, unless they are fixed.
inline constexpr uint32_t kMaxSlices = 64;
/// Of staging memory that a call with fixed slices takes, whatever its length and ranks: as long as
/// slices are no shorter than kLeastFixedSlice.
inline constexpr uint64_t kMostStagingBytes = uint64_t{64} << 20U;
/// Of such a slice, unless all messages go through memory that devices share.
inline constexpr uint64_t kFixedSlice = uint64_t{1} << 20U;
inline constexpr uint64_t kLeastFixedSlice = uint64_t{4} << 10U;

/// How messages from rank to rank are cut at most: slices on their way in each direction. A rank
/// that sends a message and then, in another call, receives one of the same rank, which does the
/// same, gets so far without its other end.
inline constexpr plan::Choice kMessageChoice{kFixedSlice, 7};

/// The region that a message carries. Null for other steps, and for a send without a source, which
/// `lower` refuses.
[[nodiscard]] const plan::Region* carried_by(const plan::Step& step);
/// The ranks with which `plan` exchanges messages, ascending.
[[nodiscard]] std::vector<int> peers_of(const plan::RankPlan& plan);
/// Whether one call of the cluster's library on the user's stream is all of it. (A rank may have no
/// other step in a plan over several clusters, too: a sliced plan is cut there as for other ranks.)
[[nodiscard]] bool is_one_library_call(const plan::RankPlan& plan);
[[nodiscard]] Geometry geometry_of(const plan::RankPlan& plan, const Target& target,
                                   const CallShape& call);

}  // namespace hetccl::lower
