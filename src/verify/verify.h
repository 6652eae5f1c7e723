// The symbolic verifier: proves that the Code of all ranks, taken together, does what the
// collective asks for, in any timing that exec allows. It knows nothing of planners or of
// lowering's passes.
//
// It proves, by running all ranks on expressions (machine.h): no deadlock, even where all streams
// of a rank are one queue of the hardware and a send completes only once its receive is posted,
// credit of rings and turns of buffers included; no two uses of memory, one of them a write, that a
// rank's own waits leave unordered, over several calls in flight, alike or not; every contribution
// present exactly once, the output complete, in place and out of place; and on all ranks of an
// all-reduce the same expression, evaluated in the same place or by the same kernel (invariant 1).
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
  bool observed = false;  ///< as for a trace
  /// Of an uneven call's blocks, by unit (see `unit_of`); of an even call none.
  std::vector<uint64_t> lengths{};
  size_t most_ring_bytes = SIZE_MAX;  ///< of each ring, however large its window
  /// Whether the transport from `rank` to `peer` reads and writes the memory of `rank`'s device
  /// itself. Null: that of hosts alone.
  bool (*reaches)(int rank, int peer) = nullptr;
  /// Whether the call's memory is registered, where a transport reaches no other.
  bool registered = true;
};

struct Verified {
  uint64_t cross_bytes = 0;   ///< payload between clusters, all directions
  uint64_t messages = 0;      ///< between clusters, per slice
  uint64_t steps = 0;         ///< of all ranks' plans, per slice
  uint64_t instructions = 0;  ///< of all ranks' Code
};

/// Of an even call. Where the rank's device has no kernels, the host adds.
[[nodiscard]] lower::CallShape shape_of(const topology::Topology& topology, int rank,
                                        const Options& options);

/// One call, lowered on all ranks.
struct Lowered {
  Problem problem;
  Codes codes;
};

/// The target of `rank` in a job of that topology: its device and a lane for each peer, with a
/// window where the topology has one.
[[nodiscard]] lower::Target target_of(const topology::Topology& topology, int rank,
                                      const plan::RankPlan& plan);
/// The same for a message's plan, whose lane has the window of messages. With `by_library` the
/// cluster's library carries the message.
[[nodiscard]] lower::Target target_of_message(const topology::Topology& topology, int rank,
                                              const plan::RankPlan& plan, bool by_library = false);
/// Lowers all ranks' plans for a call. `topology` outlives what is returned.
Result<Lowered> lower_all(const plan::Spec& spec, const topology::Topology& topology,
                          const std::vector<plan::RankPlan>& plans, const Options& options);
/// Lowers a message from one rank to another (plan::plan_message); `by_library`, of one
/// cluster, whose library carries it (plan::plan_message_by_library).
Result<Lowered> lower_message(int from, int to, const topology::Topology& topology,
                              const Options& options, bool by_library = false);
/// Gives every ring of `lowered` the fewest bytes for which the call has the same Code, so that
/// senders wait for credit. `plans` and `options` are those that it was lowered from.
void shrink_rings(Lowered& lowered, const std::vector<plan::RankPlan>& plans,
                  const Options& options);

/// InternalError says which instruction of which rank is wrong, and how.
Status check_code(const Problem& problem, const Codes& codes);

/// A call among others in flight.
struct Flight {
  const Lowered* call = nullptr;
  uint32_t executor = 0;  ///< as in Launch
  uint32_t group = 0;     ///< as in Launch
};
/// Checks calls in flight at once, of one topology, in the order in which all ranks launch them.
Status check_together(std::span<const Flight> flights, const MachineOptions& options);
/// `plans[r]` is rank r's: lowers and checks the Code of an even call, and of one slice alone.
/// InternalError says what is wrong with a plan or with Code.
Result<Verified> verify(const plan::Spec& spec, const topology::Topology& topology,
                        const std::vector<plan::RankPlan>& plans, const Options& options = {});

}  // namespace hetccl::verify
