// How a rank reaches its coordinator.
#pragma once

#include "bootstrap/unique_id.h"
#include "net/socket.h"

namespace hetccl::bootstrap {

struct DialOptions {
  int32_t rank = 0;
  net::Key key;                ///< of the job
  net::Encryption encryption;  ///< null: plain
  TimePoint deadline;
  Duration patience{};             ///< how long one listener may take for the handshake
  const Cancel* cancel = nullptr;  ///< ends it early; may be null
};

/// An authenticated connection to the coordinator. Tries every address of the id until the
/// deadline; one that answers but does not know the secret is given up after a few attempts.
/// Timeout or RemoteError says what each address did; InvalidUsage that the coordinator's process
/// is set differently. Blocks.
Result<net::Wire> dial(const Invitation& invitation, const DialOptions& options);

}  // namespace hetccl::bootstrap
