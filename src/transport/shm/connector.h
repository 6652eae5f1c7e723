// How two ranks of a host come to share a channel's segment. The lower rank makes it and offers it
// in the higher one's mailbox; the higher one attaches and answers in the segment. Each rings the
// other's bell then. One thread for all that connect posts, answers and sleeps until its bell
// rings; it exists only while something connects.
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

/// Thread-safe. Offers for a communicator that nobody connects in yet stay in the mailbox.
class Connector {
 public:
  /// `waker`: see make_shm_transport.
  Connector(Waker* waker, const Log& log);
  /// Nobody connects any more.
  ~Connector();
  Connector(const Connector&) = delete;
  Connector& operator=(const Connector&) = delete;

  /// Where others find this end's mailbox.
  Result<SharedMemoryAddress> listen();
  /// The segment that both ends have; where there is none, why.
  using Connected = std::function<void(Result<SharedMemory>)>;
  /// Connects with `id.peer`, whose mailbox is at `peer`, until `limit` ends it. Calls `connected`
  /// by the thread of all that connect, with no lock held. An error: it never will.
  Status connect(const PeerId& id, const SharedMemoryAddress& peer, const net::Secret& secret,
                 const WaitLimit& limit, Connected connected);
  /// As Transport::forget.
  void forget(uint64_t communicator, int self);

 private:
  using Key = std::tuple<uint64_t, int, int>;  // communicator, self, peer
  using Lock = std::unique_lock<std::mutex>;
  struct Proposal;
  struct Wait;
  using Waits = std::list<std::unique_ptr<Wait>>;

  Result<std::unique_ptr<Proposal>> propose(const Wait& wait) const;
  // The rest with mutex_ held, which those with a `lock` release meanwhile.
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
  Waits waits_;                           // only the thread takes any out
  std::map<Key, SharedMemory> accepted_;  // segments that their connect() has yet to take
  bool serving_ = false;
  std::thread thread_;
};

}  // namespace hetccl::transport::shm
