// Corrects the cost model's predictions by what jobs have measured.
#pragma once

#include <map>
#include <vector>

#include "tune/chooser.h"
#include "tune/knowledge.h"

namespace hetccl::tune {

/// Immutable.
class Correction {
 public:
  /// `chooser` is of the topology in which `learnt` was measured.
  Correction(Chooser& chooser, const topology::Topology& topology,
             const std::vector<Learnt>& learnt);

  /// Returns the ratio of measured to predicted time for a call of `key` with `bytes` per block.
  /// Uses this key's measurement if there is one. Otherwise interpolates between the nearest
  /// measured sizes of the same collective, each with the default setting. Returns 1 if nothing was
  /// measured.
  [[nodiscard]] double factor(const Key& key, uint64_t bytes) const;

 private:
  // Maps a block's bytes to the logarithm of the factor.
  using Factors = std::map<uint64_t, double>;
  std::map<Key, Factors> defaults_;  // by keys of size class 0
  std::map<Key, double> tuned_;
};

}  // namespace hetccl::tune
