// The failures that an executor reports.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/status.h"

namespace hetccl::exec {

/// A collective that does not complete. Other ranks may know the reason.
struct Stall {
  uint64_t sequence = 0;
  std::string call;    ///< "all_reduce #3 (10 float32, sum)"
  std::string what;    ///< "all_reduce #3 (10 float32, sum) timed out after 100 ms"
  std::string detail;  ///< as this rank sees it: "it waits for messages to or from rank 1"
};

/// A failure, and the rank that caused it (-1: unknown).
struct Fault {
  Status status;
  int rank = -1;
  std::optional<Stall> stall;  ///< set if the status only describes this stall
};

}  // namespace hetccl::exec
