// Accepts what peers dial. One thread serves the listener for as long as it listens: also while no
// rank connects, strangers are timed out and leave the backlog to peers. It sleeps while nobody
// comes.
#pragma once

#include <poll.h>

#include <atomic>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <tuple>
#include <vector>

#include "base/log.h"
#include "net/auth.h"
#include "net/crowd.h"
#include "net/refusals.h"
#include "net/socket.h"
#include "transport/transport.h"

namespace hetccl::transport::tcp {

/// net::Hello::purpose of this transport, and of those that use its connections for their own.
inline constexpr uint32_t kPurpose = 2, kPurposeOfVerbs = 3, kPurposeOfNcclNet = 4;

class Acceptor {
 public:
  /// How many channels peers may have dialled that this process has not taken.
  static constexpr size_t kMaxAdmitted = 1024;
  /// `streams`: of each channel. `encryption`: null for plain connections. Peers that dial while
  /// `max_admitted` channels wait are not accepted until there is room, or this process awaits
  /// them.
  static Result<std::unique_ptr<Acceptor>> start(net::Listener listener, uint32_t streams,
                                                 net::Encryption encryption, const Log& log,
                                                 size_t max_admitted = kMaxAdmitted,
                                                 uint32_t purpose = kPurpose);
  ~Acceptor();
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;

  /// What those who dial have to say that they come for.
  [[nodiscard]] uint32_t purpose() const { return purpose_; }

  /// One thread inside connect(). While it lives, peers of its communicator can prove themselves,
  /// and not only the one it waits for: ranks come in any order.
  class Expectation {
   public:
    /// `id` outlives it.
    Expectation(Acceptor& acceptor, const PeerId& id, const net::Secret& secret);
    ~Expectation();
    Expectation(const Expectation&) = delete;
    Expectation& operator=(const Expectation&) = delete;
    [[nodiscard]] bool valid() const { return bell_.valid(); }
    [[nodiscard]] const PeerId& id() const { return id_; }
    [[nodiscard]] const net::Key& key() const { return key_; }
    /// Polls readable once `take` has something.
    [[nodiscard]] int fd() const { return bell_.get(); }
    /// The wires of the channel that the peer has dialled, in the order of their numbers, once all
    /// are there.
    std::optional<std::vector<net::Wire>> take();

   private:
    friend class Acceptor;
    Acceptor& acceptor_;
    const PeerId& id_;
    const net::Key key_;
    const Fd bell_;
  };

  /// Drops what peers have dialled for rank `self` of `communicator` and it has not taken.
  /// Thread-safe.
  void forget(uint64_t communicator, int self);

 private:
  using Key = std::tuple<uint64_t, int, int>;  // communicator, self, peer
  // An accepted connection whose other end has not proven itself yet.
  struct Visitor {
    uint64_t name = 0;
    Fd fd;
    net::ListenHandshake handshake;
    net::SocketAddress peer;
    net::Crowd::Seat seat;  // while it is not proven
    TimePoint since;
  };
  using Visitors = std::list<Visitor>;

  Acceptor(net::Listener listener, Fd bell, uint32_t streams, net::Encryption encryption,
           const Log& log, size_t max_admitted, uint32_t purpose);
  void serve();
  void serve_once();
  void wait();
  void accept_visitors();
  void pause_accepting(const Status& why);
  void drop_abandoned();
  bool drop_one(const char* why);
  bool advance(Visitor& visitor);
  void refuse(const Visitor& visitor, const std::string& why);
  void admit(Visitor& visitor);
  [[nodiscard]] static pollfd entry_of(const Visitor& visitor);
  [[nodiscard]] static Key key_of(const PeerId& id) { return {id.communicator, id.self, id.peer}; }
  [[nodiscard]] const net::Key* key_of(const net::Hello& hello) const;
  [[nodiscard]] bool full() const { return admitted_.size() >= max_admitted_; }

  const net::Listener listener_;
  const Fd bell_;  // wakes the thread
  const uint32_t streams_;
  const net::Encryption encryption_;
  const Log log_;
  const size_t max_admitted_;
  const uint32_t purpose_;
  std::atomic<bool> stop_{false};

  // The thread's own.
  net::Crowd unproven_;  // of visitors_
  Visitors visitors_;    // oldest first
  uint64_t next_name_ = 0;
  TimePoint accepts_from_{};    // not before: descriptors had run out
  TimePoint complains_from_{};  // of that, and not before
  TimePoint drops_from_{};      // what peers have abandoned
  net::Refusals refusals_;

  std::mutex mutex_;  // guards what follows
  std::list<Expectation*> expectations_;
  std::map<Key, std::vector<net::Wire>> admitted_;  // wires that their connect() has yet to take

  std::thread thread_;
};

}  // namespace hetccl::transport::tcp
