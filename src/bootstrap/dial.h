// Connects a rank to its coordinator.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "base/log.h"
#include "bootstrap/unique_id.h"
#include "net/socket.h"

namespace hetccl::bootstrap {

/// Returns how long each end of a handshake waits for the other: the liveness time, but at least
/// five seconds. With less, ranks on a busy machine would drop each other repeatedly.
inline Duration handshake_patience(int64_t liveness_ms) {
  return std::chrono::milliseconds(std::max<int64_t>(liveness_ms, 5'000));
}

struct DialOptions {
  int32_t rank = 0;
  net::Key key;                ///< the job's
  net::Encryption encryption;  ///< null: plain
  TimePoint deadline;
  Duration patience{};             ///< time for one listener's handshake
  Log log{};                       ///< logs every ten seconds which address is unreachable
  const Cancel* cancel = nullptr;  ///< cancels the dial; may be null
};

/// Returns an authenticated connection to the coordinator. Tries every address of the id until the
/// deadline, even those that refuse, because a stranger may have answered, or a coordinator flooded
/// by strangers. Two answers are final: that of a proven coordinator (InvalidUsage: its settings
/// differ), and closed ports, where nobody listens any more. Otherwise the error at the deadline
/// lists each address's last answer. Blocks.
Result<net::Wire> dial(const Invitation& invitation, const DialOptions& options);

}  // namespace hetccl::bootstrap
