// Numbers on the wire: little endian whatever the machine.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hetccl {

template <typename T>
void put_number(uint8_t* out, T value) {
  for (size_t i = 0; i < sizeof value; ++i)
    out[i] = static_cast<uint8_t>(static_cast<uint64_t>(value) >> (8 * i));
}

template <typename T>
T get_number(const uint8_t* in) {
  uint64_t value = 0;
  for (size_t i = 0; i < sizeof(T); ++i) value |= static_cast<uint64_t>(in[i]) << (8 * i);
  return static_cast<T>(value);
}

}  // namespace hetccl
