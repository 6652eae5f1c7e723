// Spreads pairs of ranks over the devices of their hosts.
#pragma once

#include <algorithm>
#include <cstddef>

namespace hetccl::transport {

/// Returns the rail (of `n` equal ones) of a pair of ranks, the same at both ends. It follows from
/// the lower rank's number, so ranks i and i + n of two hosts meet on rail i, and the ranks of a
/// host use all of its rails.
[[nodiscard]] inline size_t rail_of(int self, int peer, size_t n) {
  return static_cast<size_t>(std::min(self, peer)) % n;
}

}  // namespace hetccl::transport
