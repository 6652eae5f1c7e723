// How a rank reaches its coordinator.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "base/log.h"
#include "bootstrap/unique_id.h"
#include "net/socket.h"

namespace hetccl::bootstrap {

/// How long each end of a handshake waits for the other: the liveness time, and five seconds at
/// least. With less, ranks on a busy machine would drop each other again and again.
inline Duration handshake_patience(int64_t liveness_ms) {
  return std::chrono::milliseconds(std::max<int64_t>(liveness_ms, 5'000));
}

struct DialOptions {
  int32_t rank = 0;
  net::Key key;                ///< of the job
  net::Encryption encryption;  ///< null: plain
  TimePoint deadline;
  Duration patience{};             ///< how long one listener may take for the handshake
  Log log{};                       ///< says every ten seconds whom this rank cannot reach
  const Cancel* cancel = nullptr;  ///< ends it early; may be null
};

/// An authenticated connection to the coordinator. Tries every address of the id until the
/// deadline, also those that refuse: a stranger may have answered, or a coordinator that strangers
/// flood. Only a coordinator that has proven itself is believed at once (InvalidUsage: its process
/// is set differently), and closed ports, where nobody listens any more. Else the error at the
/// deadline says what each address did last. Blocks.
Result<net::Wire> dial(const Invitation& invitation, const DialOptions& options);

}  // namespace hetccl::bootstrap
