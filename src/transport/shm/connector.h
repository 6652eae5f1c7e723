// Connects two ranks of a host through a shared segment. The lower rank creates the segment and
// posts an offer to the higher rank's mailbox; the higher rank attaches and answers in the segment.
// Each then rings the other's bell. One thread serves all connects: it posts, answers, and sleeps
// until its bell rings. It exists only while something connects.
#pragma once

#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <tuple>

#include "base/cancel.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/shared_memory.h"
#include "base/waker.h"
#include "net/auth.h"
#include "transport/shm/mailbox.h"
#include "transport/transport.h"

namespace hetccl::transport::shm {

/// Thread-safe. Offers for a communicator in which nobody connects yet stay in the mailbox.
class Connector {
 public:
  /// `waker`: see make_shm_transport.
  Connector(Waker* waker, const Log& log);
  /// Requires that nobody connects any more.
  ~Connector();
  Connector(const Connector&) = delete;
  Connector& operator=(const Connector&) = delete;

  /// Returns the address of this end's mailbox.
  Result<SharedMemoryAddress> listen();
  /// Takes the segment that both ends share, or the reason why there is none.
  using Connected = std::function<void(Result<SharedMemory>)>;
  /// Connects with `id.peer`, whose mailbox is at `peer`, within `limit`. The connector's thread
  /// calls `connected` without holding a lock. If this returns an error, `connected` is never
  /// called.
  Status connect(const PeerId& id, const SharedMemoryAddress& peer, const net::Secret& secret,
                 const WaitLimit& limit, Connected connected);
  /// See Transport::forget.
  void forget(uint64_t communicator, int self);

 private:
  using Key = std::tuple<uint64_t, int, int>;  // communicator, self, peer
  using Lock = std::unique_lock<std::mutex>;
  struct Proposal;
  struct Wait;
  using Waits = std::list<std::unique_ptr<Wait>>;

  Result<std::unique_ptr<Proposal>> propose(const Wait& wait) const;
  // Require mutex_. Those that take a `lock` release it meanwhile.
  Status start();
  void serve(Lock& lock);
  void prepare(Lock& lock);
  Waits look();
  void sleep(Lock& lock);
  std::optional<Result<SharedMemory>> outcome_of(Wait& wait);
  bool accept(const Offer& offer);
  Status attach(const Offer& offer, const Wait& wait);

  Waker* const waker_;
  const Log log_;
  std::mutex mutex_;  // guards what follows
  std::unique_ptr<Waker> bell_;
  std::optional<Mailbox> mailbox_;
  Waits waits_;                           // only the thread removes entries
  std::map<Key, SharedMemory> accepted_;  // segments that their connect() has yet to take
  bool serving_ = false;
  std::thread thread_;
};

}  // namespace hetccl::transport::shm
