// Finds the rules: in a file that hetccl's setting names, in MPICH's own settings, or in hetccl's
// defaults.
#pragma once

#include <string>

#include "base/config.h"
#include "base/status.h"

namespace hetccl::mpi {

struct RuleSource {
  std::string name;  ///< for messages
  std::string text;  ///< in the form of a tuning file
};

/// Returns the file of HETCCL_MPI_FILE if set. Else combines MPICH's settings for single
/// collectives (MPIR_CVAR_..._INTRA_ALGORITHM and ..._COMPOSITION), then the files of its other
/// settings, then hetccl's defaults. Fails if a file cannot be read, or if a file of MPICH's
/// settings is not JSON.
Result<RuleSource> find_rules(const Config& config);

}  // namespace hetccl::mpi
