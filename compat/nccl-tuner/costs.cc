#include "nccl-tuner/costs.h"

#include <algorithm>

#include "tune/library_space.h"

namespace hetccl::nccl_tuner {
namespace {

// Pairs that NCCL expects to take this many times as long as the best are not tried: its model is
// not that wrong.
constexpr float kHopeless = 4;

}  // namespace

Costs::Costs() {
  for (auto& row : costs_) row.fill(kImpossible);
}

Costs::Costs(const float* table, int n_algorithms, int n_protocols) : Costs() {
  for (int a = 0; a < std::min(n_algorithms, Tactic::kAlgorithms); ++a)
    for (int p = 0; p < std::min(n_protocols, Tactic::kProtocols); ++p)
      costs_[static_cast<size_t>(a)][static_cast<size_t>(p)] = table[a * n_protocols + p];
}

Costs Costs::unknown(int function) {
  Costs costs;
  for (const int protocol : {Tactic::kLl, Tactic::kSimple}) {
    costs.costs_[Tactic::kRing][static_cast<size_t>(protocol)] = 1;
    if (function == kAllReduce) costs.costs_[Tactic::kTree][static_cast<size_t>(protocol)] = 1;
  }
  return costs;
}

bool Costs::possible(int algorithm, int protocol) const {
  return algorithm >= 0 && algorithm < Tactic::kAlgorithms && protocol >= 0 &&
         protocol < Tactic::kProtocols &&
         costs_[static_cast<size_t>(algorithm)][static_cast<size_t>(protocol)] >= 0;
}

bool Costs::possible(const plan::Resources& resources) const {
  const int algorithm = resources.tactic.algorithm - 1, protocol = resources.tactic.protocol - 1;
  if (resources.tactic.channels > 0 && !takes_channels(algorithm)) return false;
  return (algorithm < 0 && protocol < 0) || possible(algorithm, protocol);
}

tune::Space Costs::space(uint64_t bytes) const {
  struct Pair {
    float cost = 0;
    int algorithm = 0, protocol = 0;
  };
  std::vector<Pair> pairs;
  for (int a = 0; a < Tactic::kAlgorithms; ++a)
    for (int p = 0; p < Tactic::kProtocols; ++p)
      if (possible(a, p))
        pairs.push_back({costs_[static_cast<size_t>(a)][static_cast<size_t>(p)], a, p});
  std::stable_sort(pairs.begin(), pairs.end(),
                   [](const Pair& a, const Pair& b) { return a.cost < b.cost; });
  tune::Space space{{tune::vendor_setting({}), {}}};
  for (const Pair& pair : pairs) {
    if (pair.cost > kHopeless * pairs.front().cost) break;
    space.push_back(tune::library_subspace(pair.algorithm, pair.protocol, bytes));
  }
  return space;
}

}  // namespace hetccl::nccl_tuner
