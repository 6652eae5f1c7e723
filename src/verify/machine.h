// The machine on which the verifier runs the Code of all ranks, on expressions instead of numbers.
//
// Calls are in flight at once, launched in one order by all ranks. It runs under the most that may
// hold an instruction up: all streams of a rank, of all its executors, are one queue of the
// hardware, in the order of the launches; a send completes only once its receive has been posted;
// rings give credit as acknowledgements come; buffers are taken by turns. Every instruction only
// ever enables others, so if this run comes to its end, all do; if it does not, that is a deadlock.
//
// What it knows to be ordered is the least that exec promises: a rank's own waits and signals, the
// order of each stream, and that the messages of a lane complete in order. Two uses of memory, one
// of them a write, that this leaves unordered are an error. Since none are, timing cannot matter,
// and the values of this one run stand for all.
#pragma once

#include <span>

#include "verify/problem.h"

namespace hetccl::verify {

/// A call in flight. Several may share a problem and its Code.
struct Launch {
  const Problem* problem = nullptr;
  const Codes* codes = nullptr;
  const Matching* matching = nullptr;
  /// Calls of one executor share lanes, rings, streams and the buffers that they take by turns.
  uint32_t executor = 0;
  /// Calls in a row with one number, not 0, are the messages of one call.
  uint32_t group = 0;
};

struct MachineOptions {
  bool in_place = false;
  uint32_t buffer_sets = 1;  ///< of each executor, which its calls take by turns
  /// An action of one rank's launches of messages (lower::Group) that is left out, to see that it
  /// is missed: counted from 0, and again from 0 behind the last.
  struct LeftOut {
    int rank = -1;
    uint32_t action = 0;
  } left_out{};
};

/// InternalError says which instruction of which rank is wrong, and how.
Status run_machine(std::span<const Launch> launches, const MachineOptions& options);

}  // namespace hetccl::verify
