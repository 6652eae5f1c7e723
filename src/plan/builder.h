// Helpers for the planners: one rank's plan under construction. Every planner walks the messages of
// all ranks in one canonical order, so that numbers and orders agree; the builder keeps only the
// steps of its rank.
#pragma once

#include <utility>
#include <vector>

#include "plan/crossing.h"
#include "plan/cut.h"
#include "plan/plan.h"
#include "topology/topology.h"

namespace hetccl::plan {

using Deps = std::vector<uint16_t>;

void append(Deps& deps, const Deps& more);
[[nodiscard]] Region region_of(Buffer buffer, const Piece& piece);
/// The part of `whole`'s block that `piece` covers.
[[nodiscard]] Region part_of(const Region& whole, const Piece& piece);

/// Block `index` of a run.
[[nodiscard]] Region block_in_run(const Region& run, uint32_t index);

/// A cluster's partial results, one per entry of their cut. A region is valid only on the entry's
/// holder.
struct Partial {
  std::vector<Region> regions;
  Deps ready;
};

class Builder {
 public:
  /// If `crossing` is given, also counts the messages of all ranks there.
  Builder(int rank, const Spec& spec, const topology::Topology& topology,
          Crossing* crossing = nullptr);

  [[nodiscard]] const Spec& spec() const { return spec_; }
  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int cluster() const { return cluster_; }
  [[nodiscard]] int n_ranks() const { return topology_.n_ranks(); }
  [[nodiscard]] int n_clusters() const { return static_cast<int>(topology_.clusters().size()); }
  [[nodiscard]] const topology::Topology& topology() const { return topology_; }
  [[nodiscard]] const topology::Cluster& cluster(int c) const {
    return topology_.clusters()[static_cast<size_t>(c)];
  }
  [[nodiscard]] const topology::Cluster& mine() const { return cluster(cluster_); }
  [[nodiscard]] bool kernels_everywhere() const { return topology_.kernels_everywhere(); }
  /// A cluster of one rank has no vendor communicator.
  [[nodiscard]] bool alone() const { return mine().ranks.size() == 1; }
  /// Whether the rank's input is already its cluster's partial result.
  [[nodiscard]] bool input_is_partial() const { return alone() && !spec_.scale; }
  [[nodiscard]] int local_rank(int rank) const { return topology_.local_rank(rank); }
  [[nodiscard]] int cluster_of(int rank) const { return topology_.cluster_of(rank); }
  /// The global rank that holds `held` in cluster `c`.
  [[nodiscard]] int holder(int c, const Held& held) const;
  /// Whether this rank holds `held`, an entry of a cut of its cluster.
  [[nodiscard]] bool holds(const Held& held) const { return holder(cluster_, held) == rank_; }
  /// The clusters in the order in which a broadcast passes them, beginning with the root's. A
  /// reduction takes the reverse order.
  [[nodiscard]] std::vector<int> chain() const;
  /// The line of a cluster's blocks: one block per rank.
  [[nodiscard]] std::vector<uint32_t> line_of(int c) const;

  uint16_t add(Step step);
  /// Returns a scratch region for the fractions that `piece` covers of an input block. It overlaps
  /// no other region of the plan. Encoded regions get blocks of their own.
  Region scratch(const Piece& piece, bool encoded = false);
  /// Returns scratch for the piece as it crosses between clusters: encoded, if this plan's messages
  /// are.
  Region scratch_for_message(const Piece& piece) { return scratch(piece, encodes()); }
  /// Returns a run of `blocks` whole scratch blocks, with slices as long as those of input block
  /// `of`.
  Region scratch_run(uint32_t blocks, uint32_t of);
  /// Returns the number of the next message. To be called for every message of any rank. `piece` is
  /// its content.
  uint32_t next_message(int from, int to, uint16_t stage, const Piece& piece);
  /// The same for a message that carries `blocks` blocks.
  uint32_t next_gathered_message(int from, int to, uint16_t stage, uint32_t blocks);
  uint16_t send(uint32_t message, int to, uint16_t stage, const Region& src, Deps deps);
  uint16_t recv(uint32_t message, int from, uint16_t stage, const Region& dst, Deps deps);

  [[nodiscard]] bool encodes() const { return !spec_.encoding.is_none(); }
  /// Adds a step that converts `src` to `dst`; one of them is encoded.
  uint16_t convert(uint16_t stage, const Region& dst, const Region& src, Deps deps);
  /// Replaces entries [first, last) of `partial` that this rank holds by encoded copies. The
  /// entries are complete after `ready`; the steps that complete the copies are added to
  /// `partial.ready`.
  void encode(const Cut& cut, size_t first, size_t last, const Deps& ready, Partial& partial);

  /// The region in which ranks pass on `piece` of the output: the output itself, or encoded
  /// scratch.
  [[nodiscard]] Region carried(const Piece& piece) const;
  /// From now on ranks pass on the output in encoded scratch. All blocks must be as long as the
  /// input's.
  void carry_encoded();
  /// Decodes every block that was carried encoded to the output.
  void decode_carried(uint16_t stage);

  /// Multiplies each `send` by the rank's factor into `recv`; adjacent pieces share a step. Returns
  /// the last step, which stands for all: they complete in order.
  Deps scale_pieces(const std::vector<ShardRegion>& pieces);
  /// Adds a CclReduce of this rank's input, multiplied first if the plan says so.
  uint16_t reduce_input(Step step);
  /// Adds a CclReduce (stage 0) of the input's pieces to scratch at their holders. If the rank is
  /// alone, its input is the partial result, once multiplied by its factor where the plan says so.
  Partial reduce_inside(const Cut& cut);
  /// Adds a CclAllReduce (stage 0) of the input to every rank's scratch, as one region. A rank
  /// alone does as in `reduce_inside`.
  Partial reduce_inside_everywhere();
  /// Adds a CclBroadcast of the output's pieces, as they are carried, from their holders. Does
  /// nothing if the rank is alone.
  void broadcast_inside(const Cut& cut, uint16_t stage, Deps deps);
  /// dst = srcs in order; `average` divides the sum. `spare` is a scratch region among the first
  /// kMaxReduceSources of `srcs`; longer lists accumulate there.
  uint16_t reduce(uint16_t stage, const Region& dst, std::vector<Region> srcs, Deps deps,
                  Region spare, bool average);

  RankPlan finish(int stages) &&;
  /// For plans of one stage, with nothing to pipeline.
  RankPlan finish_unsliced() &&;
  /// For plans of one stage whose ranks know only their own blocks; see RankPlan.
  RankPlan finish_fixed(uint32_t most_messages) &&;

 private:
  /// The steps so far that write to this scratch block.
  [[nodiscard]] Deps writers_of(uint32_t scratch_block) const;

  Spec spec_;
  const topology::Topology& topology_;
  int rank_, cluster_;
  Crossing* crossing_;
  RankPlan plan_;
  uint32_t n_messages_ = 0;
  struct ScratchBlock {
    std::vector<Piece> used{};  // parts of one input block
    bool encoded = false;
  };
  std::vector<ScratchBlock> scratch_blocks_;
  std::vector<Region> carried_;  // by output block; empty: carried in the output
};

}  // namespace hetccl::plan
