// What the planners share: one rank's plan under construction. Planners walk all messages of all
// ranks in one canonical order, so numbers and orders agree; the builder keeps what is of its rank.
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
/// `piece`'s part of the block in which `whole` lies.
[[nodiscard]] Region part_of(const Region& whole, const Piece& piece);

/// One block of a run.
[[nodiscard]] Region block_in_run(const Region& run, uint32_t index);

/// A cluster's partial results, one per entry of the cut they were made by. `regions` is meaningful
/// where this rank is the holder.
struct Partial {
  std::vector<Region> regions;
  Deps ready;
};

class Builder {
 public:
  /// Counts the messages of all ranks in `crossing`, if any.
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
  /// The rank's input is its cluster's partial result as it is.
  [[nodiscard]] bool input_is_partial() const { return alone() && !spec_.scale; }
  [[nodiscard]] int local_rank(int rank) const { return topology_.local_rank(rank); }
  [[nodiscard]] int cluster_of(int rank) const { return topology_.cluster_of(rank); }
  /// The global rank that holds `held` in cluster `c`.
  [[nodiscard]] int holder(int c, const Held& held) const;
  /// Is `held`, of a cut of this rank's cluster, held by this rank?
  [[nodiscard]] bool holds(const Held& held) const { return holder(cluster_, held) == rank_; }
  /// The clusters in the order in which a broadcast passes them, from the root's; a reduction comes
  /// back along it.
  [[nodiscard]] std::vector<int> chain() const;
  /// The line of a cluster's blocks: one per rank.
  [[nodiscard]] std::vector<uint32_t> line_of(int c) const;

  uint16_t add(Step step);
  /// A scratch region over these fractions of `piece`'s block, of the input, that no other region
  /// of this plan overlaps. An encoded one is in a block of encoded ones.
  Region scratch(const Piece& piece, bool encoded = false);
  /// The piece as it crosses between clusters: encoded, if this plan's messages are.
  Region scratch_for_message(const Piece& piece) { return scratch(piece, encodes()); }
  /// `blocks` whole blocks of scratch that form a run. Their slices are as long as that of the
  /// input's block `of`.
  Region scratch_run(uint32_t blocks, uint32_t of);
  /// The next message's number: to be called for every message, of whichever ranks. `piece` is what
  /// it carries.
  uint32_t next_message(int from, int to, uint16_t stage, const Piece& piece);
  /// The same for a message with the blocks of `blocks` ranks.
  uint32_t next_gathered_message(int from, int to, uint16_t stage, uint32_t blocks);
  uint16_t send(uint32_t message, int to, uint16_t stage, const Region& src, Deps deps);
  uint16_t recv(uint32_t message, int from, uint16_t stage, const Region& dst, Deps deps);

  [[nodiscard]] bool encodes() const { return !spec_.encoding.is_none(); }
  /// `src` to `dst`, one of which is encoded.
  uint16_t convert(uint16_t stage, const Region& dst, const Region& src, Deps deps);
  /// Puts encoded copies in the place of entries [first, last) of `partial`, those that this rank
  /// holds. Entries are complete after `ready`, the copies after what is added to `partial.ready`.
  void encode(const Cut& cut, size_t first, size_t last, const Deps& ready, Partial& partial);

  /// Where a piece of the output lies while ranks pass it on: in the output.
  [[nodiscard]] Region carried(const Piece& piece) const;
  /// From now on it lies in encoded scratch. All blocks are as long as the input's.
  void carry_encoded();
  /// Of what is carried encoded, every block to the output.
  void decode_carried(uint16_t stage);

  /// `send` times the rank's factor to `recv`, neighbours in one step. The last step stands for
  /// all: they are complete in order.
  Deps scale_pieces(const std::vector<ShardRegion>& pieces);
  /// Adds a CclReduce of this rank's input, multiplied where the plan says so.
  uint16_t reduce_input(Step step);
  /// CclReduce (stage 0) of the input's pieces to their holders' scratch. Where the rank is alone
  /// its input is its cluster's partial result already, or becomes it by multiplying by its factor.
  Partial reduce_inside(const Cut& cut);
  /// CclAllReduce (stage 0) of the input to every rank's scratch: one region. As `reduce_inside`
  /// where the rank is alone.
  Partial reduce_inside_everywhere();
  /// CclBroadcast of the output's pieces, where they are carried, from their holders; nothing where
  /// the rank is alone.
  void broadcast_inside(const Cut& cut, uint16_t stage, Deps deps);
  /// dst = srcs in order; `average` divides the sum. `spare` is scratch among the first
  /// kMaxReduceSources of `srcs`, in which long lists accumulate.
  uint16_t reduce(uint16_t stage, const Region& dst, std::vector<Region> srcs, Deps deps,
                  Region spare, bool average);

  RankPlan finish(int stages) &&;
  /// For plans of one stage, of which nothing could overlap.
  RankPlan finish_unsliced() &&;
  /// For plans of one stage whose ranks know their own blocks alone; see RankPlan.
  RankPlan finish_fixed(uint32_t most_messages) &&;

 private:
  /// The steps so far that write to this block of scratch.
  [[nodiscard]] Deps writers_of(uint32_t scratch_block) const;

  Spec spec_;
  const topology::Topology& topology_;
  int rank_, cluster_;
  Crossing* crossing_;
  RankPlan plan_;
  uint32_t n_messages_ = 0;
  struct ScratchBlock {
    std::vector<Piece> used{};  // all of one input block
    bool encoded = false;
  };
  std::vector<ScratchBlock> scratch_blocks_;
  std::vector<Region> carried_;  // by the output's block; empty: in the output
};

}  // namespace hetccl::plan
