// Messages between ranks of one host that are in different clusters: byte rings in shared memory.
#pragma once

#include <memory>

#include "base/log.h"
#include "base/waker.h"
#include "transport/transport.h"

namespace hetccl {
class Crew;
}

namespace hetccl::transport {

/// Between ranks of one host that share memory.
inline constexpr int kShmScore = 100;
int score_shm(const ChannelEnd& local, const ChannelEnd& peer);

/// `waker` is what the caller sleeps on, so that peers can ring it; null where it never sleeps.
/// `crew` (may be null) takes part in the copies of long messages.
Result<std::unique_ptr<Transport>> make_shm_transport(Waker* waker, const Log& log,
                                                      std::shared_ptr<Crew> crew = nullptr);

}  // namespace hetccl::transport
