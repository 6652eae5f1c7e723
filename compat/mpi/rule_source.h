// Where the rules come from: a file of hetccl's setting, MPICH's own settings, or hetccl itself.
#pragma once

#include <string>

#include "base/config.h"
#include "base/status.h"

namespace hetccl::mpi {

struct RuleSource {
  std::string name;  ///< for people
  std::string text;  ///< as a file has it
};

/// HETCCL_MPI_FILE's file. Without it what MPICH's settings of single collectives say
/// (MPIR_CVAR_..._INTRA_ALGORITHM and ..._COMPOSITION), then the files of its other settings, then
/// hetccl's rules. Fails where a file cannot be read, or those of MPICH's settings are no JSON.
Result<RuleSource> find_rules(const Config& config);

}  // namespace hetccl::mpi
