// Messages from one rank to another, as a caller gives them.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include "base/types.h"

namespace hetccl::exec {

/// In a receive's place of the peer: whichever rank sends first. No caller passes it by chance.
inline constexpr int kAnyRank = std::numeric_limits<int>::min();

/// One end of one message.
struct Message {
  bool send = false;  ///< else receive
  int peer = -1;      ///< this rank itself: the call has the other end too; or kAnyRank
  void* data = nullptr;
  DataType type{};
  uint64_t count = 0;  ///< elements
  uint32_t tag = 0;    ///< equal at both ends
  /// Of a receive from any rank: where to write which it was, before it completes. May be null.
  int* source = nullptr;
};
/// "send of 10 float32 to rank 1".
[[nodiscard]] std::string describe(const Message& message);

}  // namespace hetccl::exec
