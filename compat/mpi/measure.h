// How long collectives take by each algorithm, for `hetccl tune --mpi`.
#pragma once

#include <cstdint>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "mpi/call.h"
#include "mpi/job.h"

namespace hetccl::mpi {

struct MeasureOptions {
  std::vector<Collective> collectives;
  std::vector<int64_t> bytes;  ///< of a block, multiples of 4
  int gpu = -1;                ///< whose memory is passed; -1: host memory
  double seconds = 0.1;        ///< for one size of one collective, about
};

/// Collective over MPI_COMM_WORLD. [{"collective", "bytes", "us": {algorithm: microseconds of a
/// call, on its slowest rank}}], the same on all ranks. An algorithm is named as in a file of
/// rules, "device streams=4 communicators=2" with its parameters.
Result<Json> measure(Job& job, const MeasureOptions& options);

}  // namespace hetccl::mpi
