// Buffers that calls take by turns, as the verifier sees them.
#pragma once

#include <vector>

#include "verify/memory.h"

namespace hetccl::verify {

/// One set. Every call lays it out in its own way, so any two uses by different calls may be of the
/// same bytes, and must be ordered. (A call reads there only what it has written itself.)
class BufferSet {
 public:
  /// Null, or another call's use that may not be over for somebody who knows `clock`.
  const Use* add(const Clock& clock, Use use);

 private:
  std::vector<Use> last_;  // by call and thread
};

}  // namespace hetccl::verify
