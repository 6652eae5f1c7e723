// Geometry: how a call is cut into slices for a target.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lower/target.h"
#include "plan/plan.h"

namespace hetccl::lower {

/// Lengths and offsets of the blocks of an uneven call's buffer, in elements, one entry per block
/// of the plan. Empty: all blocks have the call's count and are contiguous.
struct Layout {
  std::span<const uint64_t> counts, offsets;
};

/// The bit for one kind of arithmetic, in a set of kinds: whether the step averages or scales
/// (plan::Step), and whether an operand is encoded.
[[nodiscard]] constexpr uint8_t arithmetic_of(bool average, bool scale, bool encoded) {
  return static_cast<uint8_t>(
      1U << ((average ? 1U : 0U) + (scale ? 2U : 0U) + (encoded ? 4U : 0U)));
}
inline constexpr uint8_t kAllArithmetic = 0xff;

/// The properties of a call that decide its Code.
struct CallShape {
  DataType type{};
  uint64_t count = 0;  ///< elements of a block; of the longest block in an uneven call
  Layout input{}, output{};
  plan::Choice choice{};
  uint8_t by_host = 0;      ///< set of arithmetic (`arithmetic_of`) that the device cannot do
  bool registered = false;  ///< all memory that its messages may move is registered with the
                            ///< transports

  [[nodiscard]] bool is_uneven() const { return !input.counts.empty() || !output.counts.empty(); }
};

/// The cut of a call into slices, and the routes of its messages. Both ends of a message compute
/// the same route.
struct Geometry {
  /// A lane's use of its rings.
  struct RingUse {
    bool send_in_ring = false, recv_in_ring = false;
    uint32_t unread = 0;  ///< earlier received slices that may be unread in the ring
    bool operator==(const RingUse&) const = default;
  };
  uint64_t slice_elements = 1;
  uint32_t n_slices = 1;
  uint32_t n_slots = 1;
  uint32_t depth = 0;
  bool short_call = false;   ///< one slice with few bytes: one stream runs it
  bool own_buffers = false;  ///< gets its own little memory, and waits for no other call
  bool brief = false;        ///< moves so little that a launch takes longer
  uint8_t by_host = 0;       ///< as in CallShape
  bool registered = false;   ///< as in CallShape
  std::vector<RingUse> lanes;

  /// Whether a call reuses its slots of scratch and staging memory.
  [[nodiscard]] bool reuses_slots() const { return n_slices > n_slots; }
  /// Whether one Code serves both geometries.
  [[nodiscard]] bool same_code(const Geometry& other) const {
    return n_slots == other.n_slots && depth == other.depth && short_call == other.short_call &&
           own_buffers == other.own_buffers && brief == other.brief && by_host == other.by_host &&
           registered == other.registered && reuses_slots() == other.reuses_slots() &&
           lanes == other.lanes;
  }
};

/// Most slices of a collective, unless its slices are fixed.
inline constexpr uint32_t kMaxSlices = 64;
/// Most staging memory of a call with fixed slices, for any length and number of ranks, unless
/// slices would become shorter than kLeastFixedSlice.
inline constexpr uint64_t kMostStagingBytes = uint64_t{64} << 20U;
/// Length of a fixed slice, unless all messages go through memory that devices share.
inline constexpr uint64_t kFixedSlice = uint64_t{1} << 20U;
inline constexpr uint64_t kLeastFixedSlice = uint64_t{4} << 10U;

/// Limits for the cut of messages from rank to rank: slice length, and slices in flight per
/// direction. A rank that sends a message and then, in another call, receives one from the same
/// rank, which does the same, can send this many slices before the other end receives.
inline constexpr plan::Choice kMessageChoice{kFixedSlice, 7};

/// The region that a message carries. Null for other steps, and for a send without a source, which
/// `lower` refuses.
[[nodiscard]] const plan::Region* carried_by(const plan::Step& step);
/// The ranks that `plan` exchanges messages with, ascending.
[[nodiscard]] std::vector<int> peers_of(const plan::RankPlan& plan);
/// Whether the whole call is one call of the cluster's library, on the user's stream. (In a plan
/// over several clusters a rank may also have just one step, but a sliced plan is cut there as on
/// the other ranks.)
[[nodiscard]] bool is_one_library_call(const plan::RankPlan& plan);
[[nodiscard]] Geometry geometry_of(const plan::RankPlan& plan, const Target& target,
                                   const CallShape& call);

}  // namespace hetccl::lower
