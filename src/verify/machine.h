// The machine on which the verifier runs the Code of all ranks, on expressions instead of numbers.
//
// Several calls are in flight, launched in the same order by all ranks. The machine runs under the
// conditions that hold instructions up the most: all streams of a rank, of all its executors, share
// one hardware queue, in launch order; a send completes only once its receive is posted; rings give
// credit only as acknowledgements arrive; buffers are taken in turn. An instruction never disables
// another, so if this run ends, all runs end; if it does not, there is a deadlock.
//
// The machine counts as ordered only what exec promises to order: a rank's own waits and signals,
// the order of each stream, and the completion order of a lane's messages. If two uses of memory,
// one of them a write, are not ordered by these, that is an error. If all are, timing cannot
// matter, and the values of this one run stand for all runs.
#pragma once

#include <span>

#include "verify/problem.h"

namespace hetccl::verify {

/// A call in flight. Several calls may share a problem and its Code.
struct Launch {
  const Problem* problem = nullptr;
  const Codes* codes = nullptr;
  const Matching* matching = nullptr;
  /// Calls of one executor share lanes, rings, streams and rotating buffers.
  uint32_t executor = 0;
  /// Consecutive calls with the same number, not 0, are the messages of one group call.
  uint32_t group = 0;
};

struct MachineOptions {
  bool in_place = false;
  uint32_t buffer_sets = 1;  ///< rotating buffer sets per executor
  /// Leaves out one action of a rank's message launches (lower::Group), to test that the verifier
  /// notices. The number is taken modulo the number of actions.
  struct LeftOut {
    int rank = -1;
    uint32_t action = 0;
  } left_out{};
};

/// InternalError names the wrong instruction, its rank, and the fault.
Status run_machine(std::span<const Launch> launches, const MachineOptions& options);

}  // namespace hetccl::verify
