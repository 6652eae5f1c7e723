// Types that the parts of the verifier share: one call of a collective, and the Code of all its
// ranks.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "lower/lower.h"
#include "plan/plan.h"
#include "topology/topology.h"

namespace hetccl::verify {

/// One call, and the way each rank cuts it. A run leaves out slices that repeat others; lengths and
/// slice counts are those of the run.
struct Problem {
  plan::Spec spec;  ///< PointToPoint: `root` sends
  const topology::Topology& topology;
  DataType type{};
  int to = -1;                           ///< PointToPoint: the receiver
  bool by_library = false;               ///< PointToPoint: a library of both ends carries the data
  std::vector<lower::Target> targets{};  ///< by rank
  std::vector<lower::Geometry> geometries{};  ///< by rank
  std::vector<uint32_t> n_slices{};           ///< by rank
  uint64_t length = 0;                        ///< of each block of an even call
  std::vector<uint64_t> lengths{};  ///< of an uneven call's blocks, by unit (see `unit_of`)

  [[nodiscard]] int n_ranks() const { return topology.n_ranks(); }
  [[nodiscard]] uint32_t most_slices() const;
  /// The ranks of each vendor communicator, ascending: those of each cluster, or the ends of a
  /// message.
  [[nodiscard]] std::vector<std::vector<int>> libraries() const;
  /// Rank of `rank` in its vendor communicator.
  [[nodiscard]] int local_rank(int rank) const;
  /// Whether `rank` launches the call. Only its ends launch a message.
  [[nodiscard]] bool launches(int rank) const;
  [[nodiscard]] bool receives(int rank) const;
  /// Elements of the block that `region` is a part of.
  [[nodiscard]] uint64_t length_of(int rank, const plan::Region& region) const;
  /// Slices of that block; 0 for an empty block of an uneven call.
  [[nodiscard]] uint32_t slices_of(int rank, const plan::Region& region) const;
  /// Whether slice `k` of that block has elements. In even calls every slice counts as having some.
  [[nodiscard]] bool exists(int rank, const plan::Region& region, uint32_t k) const {
    return lengths.empty() || k < slices_of(rank, region);
  }
  /// Bytes of `region` in slice `k`.
  [[nodiscard]] size_t bytes_of(int rank, const plan::Region& region, uint32_t k) const;
};

/// By rank.
using Codes = std::vector<lower::Code>;

/// Number of the block of the whole job that `region` belongs to. Equal numbers mean equal lengths,
/// in uneven calls too.
[[nodiscard]] uint64_t unit_of(const plan::Spec& spec, int n_ranks, int rank,
                               const plan::Region& region);
[[nodiscard]] bool same_part(const plan::Region& a, const plan::Region& b);

/// Checks that each plan is well formed on its own.
Status check_form(const plan::Spec& spec, const topology::Topology& topology,
                  std::span<const plan::RankPlan> plans);

/// Checks that each instruction is on a queue that can run it, and each sync is signalled by an
/// instruction that can signal it.
Status check_instructions(const lower::Code& code, int rank);

/// "rank 3, step 5 (send message 7 to rank 1)".
[[nodiscard]] std::string describe(const lower::Code& code, int rank, uint32_t index);

/// Instructions of different ranks that run together.
struct Matching {
  /// One message of an exchange: local rank and transfer index of both ends.
  struct Exchanged {
    uint32_t from = 0, to = 0, send = 0, receive = 0;
  };
  /// The ranks of a vendor communicator in one call.
  struct Group {
    std::vector<int> ranks;
    std::vector<uint32_t> members;  ///< by local rank: index of the instruction
    std::vector<Exchanged> exchanged{};
  };
  std::vector<std::vector<uint32_t>> other_end;  ///< by rank and message: the message's number at
                                                 ///< the other end
  std::vector<std::vector<uint32_t>> group_of;   ///< by rank and instruction: the group of a
                                                 ///< library call
  std::vector<Group> groups;
};

/// Matches sends with receives, and library calls with each other. InternalError names those
/// without a match.
Result<Matching> match(const Problem& problem, const Codes& codes);

}  // namespace hetccl::verify
