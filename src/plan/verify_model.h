// What the verifier's parts share: all ranks' plans, checked for form and matched with each other,
// with regions as ranges of cells.
#pragma once

#include <span>
#include <vector>

#include "plan/plan.h"
#include "topology/topology.h"

namespace hetccl::plan {

/// One step of one rank, numbered over all ranks.
using StepId = uint32_t;

/// Cells [begin, end) of a slice: between two neighbouring cells lies a fraction that some region
/// of some plan begins or ends at.
struct CellRange {
  uint32_t location = 0;  ///< a block of one of the rank's buffers, numbered per rank
  uint32_t begin = 0, end = 0;
};

/// One use of memory by one step.
struct Access {
  CellRange cells;
  bool write = false;
  uint32_t lane = 0;  ///< accesses of one lane go element by element: a write may equal a read
};

/// The ranks of a cluster in one vendor call.
struct CclGroup {
  int cluster = 0;
  std::vector<StepId> members;  ///< by local rank
};

class VerifyModel {
 public:
  /// Checks each plan's form, then matches sends with receives and vendor calls with each other.
  static Result<VerifyModel> build(const Spec& spec, const topology::Topology& topology,
                                   std::span<const RankPlan> plans);

  [[nodiscard]] const Spec& spec() const { return spec_; }
  [[nodiscard]] const topology::Topology& topology() const { return *topology_; }
  [[nodiscard]] int n_ranks() const { return topology_->n_ranks(); }
  [[nodiscard]] const RankPlan& plan(int rank) const { return plans_[static_cast<size_t>(rank)]; }
  [[nodiscard]] StepId n_steps() const { return static_cast<StepId>(rank_of_.size()); }
  [[nodiscard]] StepId id(int rank, size_t step) const {
    return first_[static_cast<size_t>(rank)] + static_cast<StepId>(step);
  }
  [[nodiscard]] int rank_of(StepId id) const { return rank_of_[id]; }
  [[nodiscard]] const Step& step(StepId id) const {
    return plan(rank_of(id)).steps[id - first_[static_cast<size_t>(rank_of(id))]];
  }
  [[nodiscard]] const std::vector<CclGroup>& groups() const { return groups_; }
  /// Of a Ccl step: its place in `groups`. Of a Send or Recv: the other end.
  [[nodiscard]] uint32_t match(StepId id) const { return match_[id]; }
  [[nodiscard]] uint32_t n_cells() const { return static_cast<uint32_t>(cuts_.size()) - 1; }
  [[nodiscard]] uint32_t n_locations(int rank) const;
  [[nodiscard]] CellRange cells(int rank, const Region& region, bool in_place) const;
  /// What `id` reads and writes. A copy onto itself writes nothing.
  [[nodiscard]] std::vector<Access> accesses(StepId id, bool in_place) const;
  /// "rank 3, step 5 (send message 7 to rank 1)".
  [[nodiscard]] std::string describe(StepId id) const;

 private:
  VerifyModel(const Spec& spec, const topology::Topology& topology,
              std::span<const RankPlan> plans);
  void collect_cuts();
  Status match_messages();
  Status match_ccl_calls();

  Spec spec_;
  const topology::Topology* topology_;
  std::span<const RankPlan> plans_;
  std::vector<StepId> first_;  // per rank
  std::vector<int> rank_of_;
  std::vector<uint32_t> match_;
  std::vector<CclGroup> groups_;
  std::vector<Fraction> cuts_;
};

/// All regions of a plan that name parts of a slice.
template <typename Visit>
void for_each_region(const RankPlan& plan, Visit&& visit) {
  for (const Step& step : plan.steps) {
    for (const ShardRegion& shard : step.shards) visit(shard.send), visit(shard.recv);
    for (const Region& src : step.srcs) visit(src);
    visit(step.dst);
  }
}

/// Names the block, of all that the ranks of a call have, of whose slice `region` is a part: equal
/// ones are equally long, however uneven the call.
[[nodiscard]] uint64_t unit_of(const Spec& spec, int n_ranks, int rank, const Region& region);
[[nodiscard]] bool is_ccl(StepKind kind);
[[nodiscard]] bool same_part(const Region& a, const Region& b);

/// Is each plan well formed by itself?
Status check_form(const Spec& spec, const topology::Topology& topology,
                  std::span<const RankPlan> plans);

/// No deadlock and no unordered conflict over `n_slices` slices. Returns an order in which one
/// slice's events can happen: 2 * StepId where a step starts, 2 * StepId + 1 where it completes,
/// 2 * n_steps + group where a vendor call does its work. Larger numbers mean nothing.
Result<std::vector<uint32_t>> check_order(const VerifyModel& model, uint32_t depth,
                                          uint32_t n_slices);

/// Executes one slice on expression trees, events in `order`.
Status check_values(const VerifyModel& model, std::span<const uint32_t> order, bool in_place);

}  // namespace hetccl::plan
