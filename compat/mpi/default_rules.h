// The rules that apply if the user gives no file.
#pragma once

#include <string>

namespace hetccl::mpi {

/// Returns the text of a tuning file (docs/mpi.md).
std::string default_rules();

}  // namespace hetccl::mpi
