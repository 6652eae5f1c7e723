// Which rank of its job this process is: NCCL does not tell its tuners.
#pragma once

#include <optional>

namespace hetccl::nccl_tuner {

struct JobRank {
  int rank = 0, n_ranks = 1;
};
/// As torchrun, Open MPI, MPICH and Slurm say in the environment; nothing where none of them does.
[[nodiscard]] std::optional<JobRank> job_rank();

}  // namespace hetccl::nccl_tuner
