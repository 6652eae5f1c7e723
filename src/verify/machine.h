// The machine on which the verifier runs the Code of all ranks, on expressions instead of numbers.
//
// It runs under the most that may hold an instruction up: all streams of a rank are one queue of
// the hardware, in the order of the launches; a send completes only once its receive has been
// posted; buffers are taken by turns. Every instruction only ever enables others, so if this run
// comes to its end, all do; if it does not, that is a deadlock.
//
// What it knows to be ordered is the least that exec promises: a rank's own waits and signals, the
// order of each stream, and that the messages of a lane complete in order. Two uses of memory, one
// of them a write, that this leaves unordered are an error. Since none are, timing cannot matter,
// and the values of this one run stand for all.
#pragma once

#include "verify/problem.h"

namespace hetccl::verify {

struct MachineOptions {
  bool in_place = false;
  uint32_t calls = 2;        ///< in flight at once, one after the other on each rank
  uint32_t buffer_sets = 1;  ///< that they take by turns
};

/// InternalError says which instruction of which rank is wrong, and how.
Status run_machine(const Problem& problem, const Codes& codes, const Matching& matching,
                   const MachineOptions& options);

}  // namespace hetccl::verify
