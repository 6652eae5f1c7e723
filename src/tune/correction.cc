#include "tune/correction.h"

#include <algorithm>
#include <cmath>

namespace hetccl::tune {
namespace {

// Drops the size: collectives and types stay apart.
Key any_size(Key key) {
  key.size_class = 0;
  return key;
}

plan::Spec spec_of(const Key& key, const topology::Topology& topology) {
  plan::Spec spec{.collective = key.collective};
  if (key.root_cluster >= 0)
    spec.root = topology.clusters()[static_cast<size_t>(key.root_cluster)].ranks.front();
  return spec;
}

}  // namespace

Correction::Correction(Chooser& chooser, const topology::Topology& topology,
                       const std::vector<Learnt>& learnt) {
  for (const Learnt& one : learnt) {
    const auto n_clusters = static_cast<int32_t>(topology.clusters().size());
    if (one.us <= 0 || one.default_us <= 0 || one.key.root_cluster >= n_clusters) continue;
    const auto predicted = chooser.choose(spec_of(one.key, topology), one.bytes, DataType::Int8);
    if (predicted.algorithm.empty() || predicted.seconds <= 0) continue;
    tuned_[one.key] = one.us * 1e-6 / predicted.seconds;
    defaults_[any_size(one.key)][one.bytes] = std::log(one.default_us * 1e-6 / predicted.seconds);
  }
}

double Correction::factor(const Key& key, uint64_t bytes) const {
  if (const auto known = tuned_.find(key); known != tuned_.end()) return known->second;
  const auto found = defaults_.find(any_size(key));
  if (found == defaults_.end()) return 1;
  const Factors& factors = found->second;
  const auto above = factors.lower_bound(bytes);
  if (above == factors.end()) return std::exp(factors.rbegin()->second);
  if (above == factors.begin() || above->first == bytes) return std::exp(above->second);
  const auto below = std::prev(above);
  const auto log_of = [](uint64_t value) {
    return std::log2(static_cast<double>(std::max<uint64_t>(value, 1)));
  };
  const double part = (log_of(bytes) - log_of(below->first)) /
                      std::max(1e-9, log_of(above->first) - log_of(below->first));
  return std::exp(below->second + part * (above->second - below->second));
}

}  // namespace hetccl::tune
