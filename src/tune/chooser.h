// Chooses among plans, and how they are cut into slices: from values that all ranks agree on, so
// that all choose alike.
#pragma once

#include <vector>

#include "plan/plan.h"
#include "tune/cost_model.h"

namespace hetccl::tune {

/// A plan that could be taken, and what it is expected to cost between clusters.
struct Candidate {
  plan::Shape shape{};
  int hops = 0;
  plan::Choice choice;
  double seconds = 0;
};

/// Immutable; `choose` costs a few additions for each cluster, and allocates nothing.
class Chooser {
 public:
  /// As CostModel.
  Chooser(const topology::Topology& topology, const std::vector<topology::Measurement>& measured,
          bool deterministic = false)
      : model_(topology, measured, deterministic) {}

  /// How a call with blocks of `count` elements is to go; `spec.shape` is not looked at.
  [[nodiscard]] Candidate choose(const plan::Spec& spec, uint64_t count, DataType type) const;
  /// Every plan there is for it, in the order of `Shape`.
  [[nodiscard]] std::vector<Candidate> candidates(const plan::Spec& spec, uint64_t count,
                                                  DataType type) const;

 private:
  [[nodiscard]] bool has_shapes(Collective collective) const;
  [[nodiscard]] uint64_t slices(const Load& load, uint64_t bytes) const;
  [[nodiscard]] Candidate candidate(plan::Spec spec, plan::Shape shape, uint64_t bytes) const;

  CostModel model_;
};

}  // namespace hetccl::tune
