// The verifier's model of buffers that calls take in turn.
#pragma once

#include <vector>

#include "verify/memory.h"

namespace hetccl::verify {

/// One set of buffers. Every call lays it out differently, so two uses by different calls may touch
/// the same bytes and must be ordered. (A call reads there only data that it has written itself.)
class BufferSet {
 public:
  /// Adds a use by an instruction that starts with `clock`. Returns null, or a use of another call
  /// that may not be over then.
  const Use* add(const Clock& clock, Use use);

 private:
  std::vector<Use> last_;  // by call and thread
};

}  // namespace hetccl::verify
