// Makes the authenticated sockets of channels. The lower rank dials, the higher one awaits what its
// Acceptor accepts, so ranks that connect crosswise never wait for each other in a circle. One
// thread for all that connect sleeps until one of them can go on; it exists only while something
// connects.
#pragma once

#include <poll.h>

#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/cancel.h"
#include "base/log.h"
#include "base/waker.h"
#include "transport/tcp/acceptor.h"
#include "transport/tcp/address.h"

namespace hetccl::transport::tcp {

class Connector {
 public:
  /// `own`: where the acceptor listens. `encryption`: null for plain connections. Fails where
  /// there are no descriptors.
  static Result<std::unique_ptr<Connector>> create(std::unique_ptr<Acceptor> acceptor,
                                                   const Endpoint& own, net::Encryption encryption,
                                                   const Log& log);
  /// Nobody connects any more.
  ~Connector();
  Connector(const Connector&) = delete;
  Connector& operator=(const Connector&) = delete;

  /// Takes the wires of one channel, in the order of their numbers.
  using Wires = Result<std::vector<net::Wire>>;
  using Connected = std::function<void(Wires)>;
  /// Connects with `id.peer` until `limit` ends it, and calls `connected` by the thread of all that
  /// connect. An error: it never will. Thread-safe.
  Status connect(const PeerId& id, const Endpoint& peer, const net::Secret& secret,
                 const WaitLimit& limit, Connected connected);
  /// Drops what peers have dialled for rank `self` of `communicator` and it has not taken.
  /// Thread-safe.
  void forget(uint64_t communicator, int self) { acceptor_->forget(communicator, self); }

 private:
  using Expectation = Acceptor::Expectation;
  struct Dial;
  struct Attempt;
  using Attempts = std::list<std::unique_ptr<Attempt>>;

  Connector(std::unique_ptr<Acceptor> acceptor, Endpoint own, net::Encryption encryption,
            const Log& log, std::unique_ptr<Waker> bell);
  Status start();  // with mutex_ held
  bool take_arrived();
  void serve();
  void serve_once();
  void sleep(Duration longest);
  std::optional<Wires> advance(Attempt& attempt, TimePoint now, TimePoint& again);
  Status advance_stream(Attempt& attempt, Dial& one, TimePoint now, TimePoint& again);
  [[nodiscard]] Status too_late(const Attempt& attempt) const;
  void remind(const Attempt& attempt) const;
  void note_detour(const Attempt& attempt, const Dial& one);
  static Status shake_hands(Dial& one, TimePoint now, TimePoint& again);
  static void add_sources(const Attempt& attempt, std::vector<pollfd>& sources);

  const std::unique_ptr<Acceptor> acceptor_;
  const Endpoint own_;
  const std::string where_;  // own_
  const net::Encryption encryption_;
  const Log log_;
  const std::unique_ptr<Waker> bell_;  // an attempt has arrived
  Attempts attempts_;                  // the thread's
  std::set<std::string> detours_;      // the thread's: cards that reached some peer in vain
  std::mutex mutex_;                   // guards what follows
  Attempts arrived_;
  bool serving_ = false;
  std::thread thread_;
};

}  // namespace hetccl::transport::tcp
