// What the parts of the verifier share: one call of a collective, and the Code of all its ranks.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "lower/lower.h"
#include "plan/plan.h"
#include "topology/topology.h"

namespace hetccl::verify {

/// One call, and how each rank cuts it. A run leaves out slices that would repeat others, so
/// lengths and slices are those that run.
struct Problem {
  plan::Spec spec;  ///< PointToPoint: `root` sends
  const topology::Topology& topology;
  DataType type{};
  int to = -1;              ///< PointToPoint: the rank that receives
  bool by_library = false;  ///< PointToPoint: a library carries it, in a communicator of both ends
  std::vector<lower::Target> targets{};       ///< by rank
  std::vector<lower::Geometry> geometries{};  ///< by rank
  std::vector<uint32_t> n_slices{};           ///< by rank
  uint64_t length = 0;                        ///< of each block of an even call
  std::vector<uint64_t> lengths{};  ///< of an uneven call's blocks, by unit (see `unit_of`)

  [[nodiscard]] int n_ranks() const { return topology.n_ranks(); }
  [[nodiscard]] uint32_t most_slices() const;
  /// The ranks of each communicator of a vendor's library, ascending: of each cluster, or of a
  /// message's ends.
  [[nodiscard]] std::vector<std::vector<int>> libraries() const;
  /// The place of `rank` among those with whom it calls the library.
  [[nodiscard]] int local_rank(int rank) const;
  /// A message's ends alone launch it.
  [[nodiscard]] bool launches(int rank) const;
  [[nodiscard]] bool receives(int rank) const;
  /// The length of the block of which `region` is a part, in elements.
  [[nodiscard]] uint64_t length_of(int rank, const plan::Region& region) const;
  /// Slices of that block; 0 of an uneven call's block of nothing.
  [[nodiscard]] uint32_t slices_of(int rank, const plan::Region& region) const;
  /// Whether slice `k` of that block has elements. Slices of even calls count as having some.
  [[nodiscard]] bool exists(int rank, const plan::Region& region, uint32_t k) const {
    return lengths.empty() || k < slices_of(rank, region);
  }
  /// The length of `region` in slice `k`, in bytes.
  [[nodiscard]] size_t bytes_of(int rank, const plan::Region& region, uint32_t k) const;
};

/// By rank.
using Codes = std::vector<lower::Code>;

/// Names the block of the whole job to which `region` belongs. Equal names mean equal lengths, in
/// uneven calls too.
[[nodiscard]] uint64_t unit_of(const plan::Spec& spec, int n_ranks, int rank,
                               const plan::Region& region);
[[nodiscard]] bool same_part(const plan::Region& a, const plan::Region& b);

/// Is each plan well formed by itself?
Status check_form(const plan::Spec& spec, const topology::Topology& topology,
                  std::span<const plan::RankPlan> plans);

/// Is each instruction on a queue that can run it, and each sync told by what can tell it?
Status check_instructions(const lower::Code& code, int rank);

/// "rank 3, step 5 (send message 7 to rank 1)".
[[nodiscard]] std::string describe(const lower::Code& code, int rank, uint32_t index);

/// Which instructions of the ranks belong together.
struct Matching {
  /// One message of an exchange: both ends' local ranks and transfers.
  struct Exchanged {
    uint32_t from = 0, to = 0, send = 0, receive = 0;
  };
  /// The ranks of a communicator of a library in one call of it.
  struct Group {
    std::vector<int> ranks;
    std::vector<uint32_t> members;  ///< the instruction's index, by local rank
    std::vector<Exchanged> exchanged{};
  };
  std::vector<std::vector<uint32_t>> other_end;  ///< by rank and message: that end's message
  std::vector<std::vector<uint32_t>> group_of;   ///< by rank and instruction, of library calls
  std::vector<Group> groups;
};

/// Matches sends with receives, and calls of the library with each other. InternalError names those
/// that have no match.
Result<Matching> match(const Problem& problem, const Codes& codes);

}  // namespace hetccl::verify
