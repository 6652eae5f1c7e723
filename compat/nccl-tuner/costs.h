// NCCL's statement about one call: the pairs of algorithm and protocol that it can use, and the
// expected cost of each.
#pragma once

#include <array>

#include "ccl/nccl/tuner_abi.h"
#include "tune/space.h"

namespace hetccl::nccl_tuner {

class Costs {
 public:
  /// `table` has rows of `n_protocols` numbers, as v3 to v5 pass it.
  Costs(const float* table, int n_algorithms, int n_protocols);
  /// Tuner API v2 passes no table: assumes the pairs that every NCCL can run.
  static Costs unknown(int function);

  [[nodiscard]] bool possible(int algorithm, int protocol) const;
  /// Whether NCCL can run with `resources`. Neither algorithm nor protocol means NCCL's own choice,
  /// which is always possible; only one of the two is never possible.
  [[nodiscard]] bool possible(const plan::Resources& resources) const;

  /// Returns the settings to search: NCCL's own choice, then each possible pair, with channel
  /// counts where the plug-in may choose them. `bytes`: of the call.
  [[nodiscard]] tune::Space space(uint64_t bytes) const;

 private:
  Costs();
  std::array<std::array<float, Tactic::kProtocols>, Tactic::kAlgorithms> costs_;
};

}  // namespace hetccl::nccl_tuner
