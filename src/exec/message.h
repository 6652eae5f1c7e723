// Messages between two ranks, as a caller passes them.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include "base/types.h"

namespace hetccl::exec {

/// A receive's peer for "any rank". The value is one that no caller passes by chance.
inline constexpr int kAnyRank = std::numeric_limits<int>::min();

/// One end of one message.
struct Message {
  bool send = false;  ///< false: receive
  int peer = -1;      ///< this rank: the same call holds the other end; or kAnyRank
  void* data = nullptr;
  DataType type{};
  uint64_t count = 0;  ///< elements
  uint32_t tag = 0;    ///< equal at both ends
  /// For receives from any rank: filled with the sender before completion. May be null.
  int* source = nullptr;
};
/// "send of 10 float32 to rank 1".
[[nodiscard]] std::string describe(const Message& message);

}  // namespace hetccl::exec
