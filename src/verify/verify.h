// The symbolic verifier: proves that the Code of all ranks, taken together, does what the
// collective asks for, in any timing that exec allows. It knows nothing of planners or of
// lowering's passes.
//
// It runs all ranks on expressions (machine.h), and proves:
// - No deadlock, even if all streams of a rank share one hardware queue and a send completes only
// once its receive is posted, including credit of rings and turns of buffers.
// - No two uses of memory, one of them a write, that a rank's own waits leave unordered, over
// several calls in flight, equal or different.
// - Every contribution is present exactly once, and the output is complete, in place and out of
// place.
// - All ranks of an all-reduce have the same expression, evaluated in the same place or by the same
// kernel (invariant 1).
// Regions are fractions of slices, so this holds for every count that gives the same Code.
#pragma once

#include <vector>

#include "verify/machine.h"
#include "verify/problem.h"

namespace hetccl::verify {

/// The call whose Code is verified.
struct Options {
  uint32_t depth = 3;
  uint64_t count = 1000;  ///< as in Signature
  DataType type = DataType::Float32;
  uint64_t slice_bytes = 512;
  bool observed = false;  ///< lowers as for a trace
  /// Lengths of an uneven call's blocks, by unit (see `unit_of`); empty for an even call.
  std::vector<uint64_t> lengths{};
  size_t most_ring_bytes = SIZE_MAX;  ///< upper bound for each ring, however large its window
  /// Whether the transport from `rank` to `peer` accesses the memory of `rank`'s device itself.
  /// Null: only if hosts reach that memory.
  bool (*reaches)(int rank, int peer) = nullptr;
  /// Whether the call's memory is registered, for transports that reach only registered memory.
  bool registered = true;
};

struct Verified {
  uint64_t cross_bytes = 0;   ///< between clusters, all directions
  uint64_t messages = 0;      ///< between clusters, per slice
  uint64_t steps = 0;         ///< of all ranks' plans, per slice
  uint64_t instructions = 0;  ///< of all ranks' Code
};

/// The shape of an even call. If the rank's device has no kernels, the host adds.
[[nodiscard]] lower::CallShape shape_of(const topology::Topology& topology, int rank,
                                        const Options& options);

/// One call, lowered on all ranks.
struct Lowered {
  Problem problem;
  Codes codes;
};

/// The lowering target of `rank` in a job of that topology: its device, and a lane for each peer,
/// with a window if the topology has one.
[[nodiscard]] lower::Target target_of(const topology::Topology& topology, int rank,
                                      const plan::RankPlan& plan);
/// The same for a message's plan, whose lane has the window for messages. `by_library`: the
/// cluster's library carries the message.
[[nodiscard]] lower::Target target_of_message(const topology::Topology& topology, int rank,
                                              const plan::RankPlan& plan, bool by_library = false);
/// Lowers all ranks' plans for a call. `topology` must outlive the result.
Result<Lowered> lower_all(const plan::Spec& spec, const topology::Topology& topology,
                          const std::vector<plan::RankPlan>& plans, const Options& options);
/// Lowers a message from one rank to another (plan::plan_message). `by_library`: within one
/// cluster, whose library carries it (plan::plan_message_by_library).
Result<Lowered> lower_message(int from, int to, const topology::Topology& topology,
                              const Options& options, bool by_library = false);
/// Shrinks every ring of `lowered` to the fewest bytes that give the same Code, so that senders
/// wait for credit. `plans` and `options` must be those that it was lowered from.
void shrink_rings(Lowered& lowered, const std::vector<plan::RankPlan>& plans,
                  const Options& options);

/// InternalError names the wrong instruction, its rank, and the fault.
Status check_code(const Problem& problem, const Codes& codes);

/// One of several calls in flight.
struct Flight {
  const Lowered* call = nullptr;
  uint32_t executor = 0;  ///< as in Launch
  uint32_t group = 0;     ///< as in Launch
};
/// Checks calls in flight at once, on one topology, launched by all ranks in this order.
Status check_together(std::span<const Flight> flights, const MachineOptions& options);
/// Lowers and checks the Code of an even call, and of the same call with one slice. `plans[r]` is
/// rank r's. InternalError says what is wrong with a plan or with the Code.
Result<Verified> verify(const plan::Spec& spec, const topology::Topology& topology,
                        const std::vector<plan::RankPlan>& plans, const Options& options = {});

}  // namespace hetccl::verify
