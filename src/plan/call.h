// A call of a collective as planners and their users see it: what of it decides the plan, and
// whether it makes sense at all.
#pragma once

#include "plan/plan.h"

namespace hetccl::plan {

/// Does every block go straight from one rank to another, within clusters too?
[[nodiscard]] bool is_pairwise(Collective collective);

/// What of a call decides its plan.
[[nodiscard]] Spec spec_of(const Signature& call, const topology::Topology& topology);

/// Can what crosses between clusters be encoded, or in one cluster, if `inside`, what ranks give
/// each other? The same on all ranks: gathers of floats, and their sums and averages.
[[nodiscard]] bool can_encode(const Signature& call, const topology::Topology& topology,
                              bool inside);

/// Does `rank` pass something to send, or get something?
[[nodiscard]] bool sends(Collective collective, int root, int rank);
[[nodiscard]] bool receives(Collective collective, int root, int rank);

/// Blocks in the buffer that each rank sends, and in the one it receives.
[[nodiscard]] uint32_t send_blocks(Collective collective, uint32_t n_ranks);
[[nodiscard]] uint32_t recv_blocks(Collective collective, uint32_t n_ranks);

/// InvalidArgument, naming the argument, for a type, reduction or root that does not exist, for a
/// reduction that the type has not, and for a count whose buffers would exceed 2^62 bytes.
Status check(const Signature& call, uint32_t n_ranks);
/// Unsupported, naming a rank and the remedy, where a rank's library or device lacks the call's
/// reduction. Every rank gets the same answer, so that none waits for others in a refused call.
Status check_support(const Signature& call, const topology::Topology& topology);

}  // namespace hetccl::plan
