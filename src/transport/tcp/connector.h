// Makes the authenticated sockets of channels. The lower rank dials; the higher one waits for what
// its Acceptor accepts, so ranks that connect crosswise never wait in a circle. One thread serves
// all connects and sleeps until one can go on. It exists only while something connects.
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
  /// `own`: where the acceptor listens. `encryption`: null for plain connections. Fails if
  /// descriptors run out.
  static Result<std::unique_ptr<Connector>> create(std::unique_ptr<Acceptor> acceptor,
                                                   const Endpoint& own, net::Encryption encryption,
                                                   const Log& log);
  /// Requires that nobody connects any more.
  ~Connector();
  Connector(const Connector&) = delete;
  Connector& operator=(const Connector&) = delete;

  /// The wires of one channel, in the order of their numbers.
  using Wires = Result<std::vector<net::Wire>>;
  using Connected = std::function<void(Wires)>;
  /// Connects with `id.peer` within `limit`. The connector's thread calls `connected`. If this
  /// returns an error, `connected` is never called. Thread-safe.
  Status connect(const PeerId& id, const Endpoint& peer, const net::Secret& secret,
                 const WaitLimit& limit, Connected connected);
  /// Drops channels that peers dialled for rank `self` of `communicator` and that it has not taken.
  /// Thread-safe.
  void forget(uint64_t communicator, int self) { acceptor_->forget(communicator, self); }

 private:
  using Expectation = Acceptor::Expectation;
  struct Dial;
  struct Attempt;
  using Attempts = std::list<std::unique_ptr<Attempt>>;

  Connector(std::unique_ptr<Acceptor> acceptor, Endpoint own, net::Encryption encryption,
            const Log& log, std::unique_ptr<Waker> bell);
  Status start();  // requires mutex_
  bool take_arrived();
  void serve();
  void serve_once();
  void sleep(Duration longest);
  std::optional<Wires> advance(Attempt& attempt, TimePoint now, TimePoint& again);
  Status advance_stream(Attempt& attempt, Dial& one, TimePoint now, TimePoint& again);
  [[nodiscard]] Status too_late(const Attempt& attempt) const;
  void remind(const Attempt& attempt) const;
  void note_detour(const Attempt& attempt, const Dial& one);
  static Status advance_handshake(Dial& one, TimePoint now, TimePoint& again);
  static void add_sources(const Attempt& attempt, std::vector<pollfd>& sources);

  const std::unique_ptr<Acceptor> acceptor_;
  const Endpoint own_;
  const std::string where_;  // own_
  const net::Encryption encryption_;
  const Log log_;
  const std::unique_ptr<Waker> bell_;  // rings when an attempt has arrived
  Attempts attempts_;                  // used by the thread
  std::set<std::string> detours_;      // used by the thread: NICs that failed to reach some peer
  std::mutex mutex_;                   // guards the members below
  Attempts arrived_;
  bool serving_ = false;
  std::thread thread_;
};

}  // namespace hetccl::transport::tcp
