// Numbers on the wire: little endian on every machine.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace hetccl {

template <typename T>
void put_number(uint8_t* out, T value) {
  std::array<uint8_t, sizeof(T)> bytes = std::bit_cast<std::array<uint8_t, sizeof(T)>>(value);
  if constexpr (std::endian::native == std::endian::big) std::reverse(bytes.begin(), bytes.end());
  std::memcpy(out, bytes.data(), sizeof value);
}

template <typename T>
T get_number(const uint8_t* in) {
  std::array<uint8_t, sizeof(T)> bytes;
  std::memcpy(bytes.data(), in, sizeof bytes);
  if constexpr (std::endian::native == std::endian::big) std::reverse(bytes.begin(), bytes.end());
  return std::bit_cast<T>(bytes);
}

}  // namespace hetccl
