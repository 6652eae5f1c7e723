// Measures how long collectives take with each algorithm, for `hetccl tune --mpi`.
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
  std::vector<int64_t> bytes;  ///< of a block; multiples of 4
  int gpu = -1;                ///< the GPU whose memory is passed; -1: host memory
  double seconds = 0.1;        ///< about, for one size of one collective
};

/// Collective over MPI_COMM_WORLD. Returns [{"collective", "bytes", "us": {algorithm: microseconds
/// of a call on its slowest rank}}], the same on all ranks. Algorithms are named as in a file of
/// rules, with parameters: "device streams=4 communicators=2".
Result<Json> measure(Job& job, const MeasureOptions& options);

}  // namespace hetccl::mpi
