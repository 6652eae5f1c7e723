// The symbolic verifier: proves that the plans of all ranks, taken together, do what the collective
// asks for, in any timing that exec allows. It knows nothing of planners.
//
// What it assumes of exec, and nothing more:
//   - a step starts when its `deps` are complete in the same slice, when what scratch_waits names
//     is complete `slots` slices earlier, and when its predecessor in its queue allows it;
//   - the queues of a rank, each in the order of for_each_issue: `ccl` (Ccl steps) and `work`
//     (Reduce, Copy), where a step starts when the one before is complete; and per peer sends and
//     receives, where a step starts when the one before has started, and which complete in order;
//   - a Ccl step starts to do its work once every rank of the cluster is in it.
//
// It proves: no deadlock, even where a send completes only once its receive has been posted and
// where all queues are one in the order of for_each_issue, copies from and to what transports reach
// included (a small call on the user's stream alone, or one queue of the hardware for all streams);
// no two steps of a rank that touch the same memory, one of them writing, without an order given by
// that rank's own waits (so no read before write, no overwrite before use, over depth + 2 slices in
// flight and for one slice alone); and then, since timing cannot matter any more, by one execution
// on expression trees: every contribution present exactly once, the output complete, in place and
// out of place, and on all ranks of an all-reduce the same expression evaluated in the same place,
// or by the same kernel (invariant 1). Slices do not share memory but for scratch, and regions are
// fractions, so this holds for every count.
#pragma once

#include <vector>

#include "plan/plan.h"

namespace hetccl::plan {

/// The call whose bytes are counted. The proof does not depend on it, but for `depth`.
struct VerifyOptions {
  uint32_t depth = 3;
  uint64_t count = 1000;  ///< as in Signature
  DataType type = DataType::Float32;
  uint64_t slice_bytes = 1024;
};

struct Verified {
  uint64_t cross_bytes = 0;  ///< payload between clusters, all directions
  uint64_t messages = 0;     ///< between clusters, per slice
  uint64_t steps = 0;        ///< of all ranks, per slice
};

/// `plans[r]` is rank r's. InternalError says which step of which rank is wrong, and how.
Result<Verified> verify(const Spec& spec, const topology::Topology& topology,
                        const std::vector<RankPlan>& plans, const VerifyOptions& options = {});

}  // namespace hetccl::plan
