// What NCCL says of one call: which pairs of algorithm and protocol it can take, and what NCCL
// thinks that each costs.
#pragma once

#include <array>

#include "ccl/nccl/tuner_abi.h"
#include "tune/space.h"

namespace hetccl::nccl_tuner {

class Costs {
 public:
  /// `table`: rows of `n_protocols` numbers, as v3 to v5 pass them.
  Costs(const float* table, int n_algorithms, int n_protocols);
  /// v2 passes none: pairs that every NCCL can take.
  static Costs unknown(int function);

  [[nodiscard]] bool possible(int algorithm, int protocol) const;
  /// Whether NCCL can run so. The library's choice is always possible; without either algorithm or
  /// protocol nothing else is.
  [[nodiscard]] bool possible(const plan::Resources& resources) const;

  /// The settings to search: NCCL's own choice, and each possible pair, with its channels where
  /// they are the plug-in's to choose. `bytes`: of the call.
  [[nodiscard]] tune::Space space(uint64_t bytes) const;

 private:
  Costs();
  std::array<std::array<float, Tactic::kProtocols>, Tactic::kAlgorithms> costs_;
};

}  // namespace hetccl::nccl_tuner
