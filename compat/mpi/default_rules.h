// The rules of those who have no file.
#pragma once

#include <string>

namespace hetccl::mpi {

/// In the form of a tuning file (docs/mpi.md).
std::string default_rules();

}  // namespace hetccl::mpi
