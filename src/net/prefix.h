// Compares addresses by the bits of a prefix.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace hetccl::net {

/// Returns whether the first `bits` of both are equal.
inline bool share_prefix(const uint8_t* one, const uint8_t* other, size_t bits) {
  const size_t whole = bits / 8, rest = bits % 8;
  if (!std::equal(one, one + whole, other)) return false;
  return rest == 0 || (one[whole] ^ other[whole]) >> (8 - rest) == 0;
}

}  // namespace hetccl::net
