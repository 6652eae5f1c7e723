// Properties of a collective call that planners and their callers need: those that decide the plan,
// and checks that the call is valid.
#pragma once

#include "plan/plan.h"

namespace hetccl::plan {

/// Whether every block goes straight from one rank to another, within clusters too.
[[nodiscard]] bool is_pairwise(Collective collective);

/// The properties of a call that decide its plan.
[[nodiscard]] Spec spec_of(const Signature& call, const topology::Topology& topology);

/// Whether the call can be encoded: the data between clusters, or, if `inside`, the messages inside
/// the only cluster. The same answer on all ranks. Possible for gathers of floats, and for their
/// sums and averages.
[[nodiscard]] bool can_encode(const Signature& call, const topology::Topology& topology,
                              bool inside);

/// Whether `rank` passes data to send, or receives data.
[[nodiscard]] bool sends(Collective collective, int root, int rank);
[[nodiscard]] bool receives(Collective collective, int root, int rank);

/// Number of blocks in each rank's send buffer, and in its receive buffer.
[[nodiscard]] uint32_t send_blocks(Collective collective, uint32_t n_ranks);
[[nodiscard]] uint32_t recv_blocks(Collective collective, uint32_t n_ranks);

/// InvalidArgument, naming the argument, if the type, reduction or root does not exist, if the type
/// lacks the reduction, or if buffers would exceed 2^62 bytes.
Status check(const Signature& call, uint32_t n_ranks);
/// Unsupported, naming a rank and the remedy, if a rank's library or device lacks the call's
/// reduction. Every rank gets the same answer, so that no rank waits for others in a refused call.
Status check_support(const Signature& call, const topology::Topology& topology);

}  // namespace hetccl::plan
