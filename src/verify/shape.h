// What one rank knows of the lengths of a call's blocks.
#pragma once

#include <vector>

#include "verify/verify.h"

namespace hetccl::verify {

/// Owns what `shape` refers to.
struct OwnShape {
  OwnShape(const plan::Spec& spec, const topology::Topology& topology, int rank,
           const Options& options);

  std::vector<uint64_t> inputs, outputs;  ///< lengths; of an even call none
  std::vector<uint64_t> offsets;          ///< how a call is cut does not depend on them
  lower::CallShape shape;
};

}  // namespace hetccl::verify
