// How pairs of ranks spread over the devices of their hosts.
#pragma once

#include <algorithm>
#include <cstddef>

namespace hetccl::transport {

/// Returns which of `n` equals a pair of ranks takes, the same at both ends. Ranks of a host follow
/// each other, and so do its devices: by the lower rank's number, ranks i and i + n of two hosts
/// meet on rail i, and the ranks of a host use all of its rails.
[[nodiscard]] inline size_t rail_of(int self, int peer, size_t n) {
  return static_cast<size_t>(std::min(self, peer)) % n;
}

}  // namespace hetccl::transport
