// Makes the authenticated sockets of channels. The lower rank dials, the higher one accepts. There
// is no thread here: of all threads inside connect(), one at a time, the *host*, serves the
// listener for everybody, so ranks that connect crosswise never wait for each other in a circle.
#pragma once

#include <poll.h>

#include <list>
#include <map>
#include <mutex>
#include <tuple>
#include <vector>

#include "base/cancel.h"
#include "base/log.h"
#include "net/auth.h"
#include "net/refusals.h"
#include "net/socket.h"
#include "transport/tcp/address.h"

namespace hetccl::transport::tcp {

class Connector {
 public:
  /// `encryption`: null for plain connections.
  Connector(net::Listener listener, uint32_t streams, net::Encryption encryption, const Log& log)
      : listener_(std::move(listener)),
        streams_(streams),
        encryption_(std::move(encryption)),
        log_(log),
        refusals_("transport tcp", log) {}

  /// What ends `connect`; `cancel` may be null.
  struct Limit {
    TimePoint deadline;
    const Cancel* cancel = nullptr;
    [[nodiscard]] bool cancelled() const { return cancel != nullptr && cancel->is_set(); }
  };
  /// The wires of one channel, in the order of their numbers. Thread-safe.
  Result<std::vector<net::Wire>> connect(const PeerId& id, const Endpoint& peer,
                                         const net::Secret& secret, const Limit& limit);

  /// Drops what peers have dialled for rank `self` of `communicator` and it has not taken.
  /// Thread-safe.
  void forget(uint64_t communicator, int self);

 private:
  using Key = std::tuple<uint64_t, int, int>;  // communicator, self, peer
  struct Dial;
  struct Wait;
  // An accepted connection whose other end has not proven itself yet.
  struct Visitor {
    Fd fd;
    net::ListenHandshake handshake;
    TimePoint since;
  };

  Result<std::vector<net::Wire>> dial(Wait& wait, const Endpoint& peer, const Limit& limit);
  Result<std::vector<net::Wire>> await(Wait& wait, const Limit& limit);
  Status advance(Dial& one, Status* refusal);
  void resign(Wait& wait);
  // Sleeps until something of `dials`, of the bell, or (as host) of the listener moves.
  void sleep(Wait& wait, const std::vector<Dial>& dials, const Limit& limit);
  void serve_listener();
  void accept_visitors();
  bool advance(Visitor& visitor);
  [[nodiscard]] static pollfd entry_of(const Visitor& visitor);
  void refuse(const Visitor& visitor, const std::string& why);
  void make_room();
  void admit(Visitor& visitor);
  [[nodiscard]] static Key key_of(const PeerId& id);
  [[nodiscard]] bool ready(const PeerId& id) const;
  [[nodiscard]] const net::Key* key_of(const net::Hello& hello) const;

  net::Listener listener_;
  const uint32_t streams_;
  const net::Encryption encryption_;
  const Log log_;
  std::mutex mutex_;
  std::list<Wait*> waits_;                          // one per thread inside connect()
  Wait* host_ = nullptr;                            // the one that serves the listener
  bool complained_ = false;                         // that no connection can be accepted
  std::list<Visitor> visitors_;                     // oldest first
  std::map<Key, std::vector<net::Wire>> admitted_;  // wires that their connect() has yet to take
  net::Refusals refusals_;
};

}  // namespace hetccl::transport::tcp
