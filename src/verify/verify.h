// The symbolic verifier: proves that the Code of all ranks, taken together, does what the
// collective asks for, in any timing that exec allows. It knows nothing of planners or of
// lowering's passes.
//
// It proves, by running all ranks on expressions (machine.h): no deadlock, even where all streams
// of a rank are one queue of the hardware and a send completes only once its receive is posted,
// credit of rings and turns of buffers included; no two uses of memory, one of them a write, that a
// rank's own waits leave unordered, over two calls in flight; every contribution present exactly
// once, the output complete, in place and out of place; and on all ranks of an all-reduce the same
// expression, evaluated in the same place or by the same kernel (invariant 1). Regions are
// fractions of slices, so this holds for every count that gives the same Code.
#pragma once

#include <vector>

#include "verify/problem.h"

namespace hetccl::verify {

/// The call whose Code is verified.
struct Options {
  uint32_t depth = 3;
  uint64_t count = 1000;  ///< as in Signature
  DataType type = DataType::Float32;
  uint64_t slice_bytes = 512;
  bool observed = false;  ///< as for a trace
};

struct Verified {
  uint64_t cross_bytes = 0;   ///< payload between clusters, all directions
  uint64_t messages = 0;      ///< between clusters, per slice
  uint64_t steps = 0;         ///< of all ranks' plans, per slice
  uint64_t instructions = 0;  ///< of all ranks' Code
};

[[nodiscard]] lower::CallShape shape_of(const Options& options);

/// One call, lowered on all ranks.
struct Lowered {
  Problem problem;
  Codes codes;
};

/// `rank`'s device and lanes in a job of that topology. All ranks that may share a window do; in a
/// job those do that are connected at init (plan::peers).
[[nodiscard]] lower::Target target_of(const topology::Topology& topology, int rank,
                                      const plan::RankPlan& plan);
/// Lowers all ranks' plans for a call. `topology` outlives what is returned.
Result<Lowered> lower_all(const plan::Spec& spec, const topology::Topology& topology,
                          const std::vector<plan::RankPlan>& plans, const Options& options);
/// InternalError says which instruction of which rank is wrong, and how.
Status check_code(const Problem& problem, const Codes& codes);
/// `plans[r]` is rank r's: lowers and checks the Code of the call, and of one slice alone.
/// InternalError says what is wrong with a plan or with Code.
Result<Verified> verify(const plan::Spec& spec, const topology::Topology& topology,
                        const std::vector<plan::RankPlan>& plans, const Options& options = {});

}  // namespace hetccl::verify
