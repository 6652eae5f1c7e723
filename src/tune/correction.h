// What the cost model's predictions have to be multiplied by, as jobs have learnt.
#pragma once

#include <map>
#include <vector>

#include "tune/chooser.h"
#include "tune/knowledge.h"

namespace hetccl::tune {

/// Immutable.
class Correction {
 public:
  /// `chooser` is of the topology where `learnt` was learnt.
  Correction(Chooser& chooser, const topology::Topology& topology,
             const std::vector<Learnt>& learnt);

  /// The time of a call of that key with blocks of `bytes` over what the model predicts: of a key
  /// that is known what its calls took; else, since others run with the model's setting, what that
  /// took at the nearest sizes of the collective that are known, in between interpolated. 1 where
  /// none is.
  [[nodiscard]] double factor(const Key& key, uint64_t bytes) const;

 private:
  // By a block's bytes: the logarithm of the factor.
  using Factors = std::map<uint64_t, double>;
  std::map<Key, Factors> defaults_;  // by keys of size class 0
  std::map<Key, double> tuned_;
};

}  // namespace hetccl::tune
