// Messages between ranks of one host in different clusters, by byte rings in shared memory.
#pragma once

#include <memory>

#include "base/log.h"
#include "base/waker.h"
#include "transport/transport.h"

namespace hetccl {
class Crew;
}

namespace hetccl::transport {

/// The score between ranks of one host that share memory.
inline constexpr int kShmScore = 100;
int score_shm(const ChannelEnd& local, const ChannelEnd& peer);

/// `waker` wakes the caller's thread, so peers can ring it; null: that thread never sleeps. `crew`
/// (may be null) helps to copy long messages.
Result<std::unique_ptr<Transport>> make_shm_transport(Waker* waker, const Log& log,
                                                      std::shared_ptr<Crew> crew = nullptr);

}  // namespace hetccl::transport
