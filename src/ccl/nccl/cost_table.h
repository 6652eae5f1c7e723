// The table in which NCCL gives a tuner plug-in the cost of each pair of algorithm and protocol.
// NCCL uses the cheapest.
#pragma once

#include "base/tactic.h"
#include "ccl/nccl/tuner_abi.h"

namespace hetccl::ccl::nccl {

/// A view.
class CostTable {
 public:
  /// The table as v3 to v5 pass it.
  CostTable(float** costs, int n_algorithms, int n_protocols)
      : costs_(reinterpret_cast<float*>(costs)),
        n_algorithms_(n_algorithms),
        n_protocols_(n_protocols) {}

  [[nodiscard]] float cost(int algorithm, int protocol) const {
    const bool inside =
        algorithm >= 0 && algorithm < n_algorithms_ && protocol >= 0 && protocol < n_protocols_;
    return inside ? costs_[algorithm * n_protocols_ + protocol] : nccl_tuner::kImpossible;
  }
  [[nodiscard]] bool possible(int algorithm, int protocol) const {
    return cost(algorithm, protocol) >= 0;
  }
  /// Makes NCCL use a possible pair.
  void take(int algorithm, int protocol) const { costs_[algorithm * n_protocols_ + protocol] = 0; }
  /// Calls `visit(algorithm, protocol)` for each possible pair.
  template <typename Visit>
  void for_each_possible(Visit&& visit) const {
    for (int a = 0; a < n_algorithms_; ++a)
      for (int p = 0; p < n_protocols_; ++p)
        if (possible(a, p)) visit(a, p);
  }

 private:
  float* costs_;
  int n_algorithms_, n_protocols_;
};

}  // namespace hetccl::ccl::nccl
