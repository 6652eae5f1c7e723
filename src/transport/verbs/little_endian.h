// Numbers on the wire: little endian whatever the machine.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hetccl::transport::verbs {

/// Writes the low `bytes` of `value`, and moves `out` behind them.
inline void put(uint8_t*& out, uint64_t value, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) *out++ = static_cast<uint8_t>(value >> (8 * i));
}

inline uint64_t get(const uint8_t*& in, size_t bytes) {
  uint64_t value = 0;
  for (size_t i = 0; i < bytes; ++i) value |= static_cast<uint64_t>(*in++) << (8 * i);
  return value;
}

}  // namespace hetccl::transport::verbs
