// One rank's knowledge of the lengths of a call's blocks.
#pragma once

#include <vector>

#include "verify/verify.h"

namespace hetccl::verify {

/// Owns the memory that `shape` refers to.
struct OwnShape {
  OwnShape(const plan::Spec& spec, const topology::Topology& topology, int rank,
           const Options& options);

  std::vector<uint64_t> inputs, outputs;  ///< lengths; empty for an even call
  std::vector<uint64_t> offsets;          ///< all zero: they do not affect the cut
  lower::CallShape shape;
};

}  // namespace hetccl::verify
