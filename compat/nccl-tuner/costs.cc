#include "nccl-tuner/costs.h"

#include <algorithm>
#include <bit>

namespace hetccl::nccl_tuner {
namespace {

// NCCL's model is not that wrong: what it expects to take so many times as long is not tried.
constexpr float kHopeless = 4;
constexpr uint64_t kBytesOfChannel = uint64_t{256} << 10U;  // where the search starts
constexpr uint64_t kMostStart = 16;

// In these NCCL limits the plug-in's number to the channels that the communicator has. In
// CollNet's, and in NVLS's over several nodes, it does not.
bool has_channels(int algorithm) {
  return algorithm == kTree || algorithm == kRing || algorithm == kPat;
}

tune::Subspace subspace(int algorithm, int protocol, uint64_t bytes) {
  plan::Resources resources;
  resources.nccl_algorithm = static_cast<uint8_t>(algorithm + 1);
  resources.nccl_protocol = static_cast<uint8_t>(protocol + 1);
  if (!has_channels(algorithm)) return {tune::vendor_setting(resources), {}};
  const uint64_t channels = std::clamp<uint64_t>(bytes / kBytesOfChannel, 1, kMostStart);
  resources.nccl_channels = static_cast<uint16_t>(std::bit_floor(channels));
  return {tune::vendor_setting(resources), {{tune::Parameter::NcclChannels, {1, 2, 4, 8, 16, 32}}}};
}

}  // namespace

Costs::Costs() {
  for (auto& row : costs_) row.fill(kImpossible);
}

Costs::Costs(const float* table, int n_algorithms, int n_protocols) : Costs() {
  for (int a = 0; a < std::min(n_algorithms, kAlgorithms); ++a)
    for (int p = 0; p < std::min(n_protocols, kProtocols); ++p)
      costs_[static_cast<size_t>(a)][static_cast<size_t>(p)] = table[a * n_protocols + p];
}

Costs Costs::unknown(int function) {
  Costs costs;
  for (const int protocol : {kLl, kSimple}) {
    costs.costs_[kRing][static_cast<size_t>(protocol)] = 1;
    if (function == kAllReduce) costs.costs_[kTree][static_cast<size_t>(protocol)] = 1;
  }
  return costs;
}

bool Costs::possible(int algorithm, int protocol) const {
  return algorithm >= 0 && algorithm < kAlgorithms && protocol >= 0 && protocol < kProtocols &&
         costs_[static_cast<size_t>(algorithm)][static_cast<size_t>(protocol)] >= 0;
}

bool Costs::possible(const plan::Resources& resources) const {
  const int algorithm = resources.nccl_algorithm - 1, protocol = resources.nccl_protocol - 1;
  if (resources.nccl_channels > 0 && !has_channels(algorithm)) return false;
  return (algorithm < 0 && protocol < 0) || possible(algorithm, protocol);
}

tune::Space Costs::space(uint64_t bytes) const {
  struct Pair {
    float cost = 0;
    int algorithm = 0, protocol = 0;
  };
  std::vector<Pair> pairs;
  for (int a = 0; a < kAlgorithms; ++a)
    for (int p = 0; p < kProtocols; ++p)
      if (possible(a, p))
        pairs.push_back({costs_[static_cast<size_t>(a)][static_cast<size_t>(p)], a, p});
  std::stable_sort(pairs.begin(), pairs.end(),
                   [](const Pair& a, const Pair& b) { return a.cost < b.cost; });
  tune::Space space{{tune::vendor_setting({}), {}}};
  for (const Pair& pair : pairs) {
    if (pair.cost > kHopeless * pairs.front().cost) break;
    space.push_back(subspace(pair.algorithm, pair.protocol, bytes));
  }
  return space;
}

}  // namespace hetccl::nccl_tuner
