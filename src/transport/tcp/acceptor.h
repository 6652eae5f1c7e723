// Accepts connections that peers dial. One thread serves the listener all the time, also while no
// rank connects: it times strangers out, so that they do not fill the backlog. It sleeps while
// nobody dials.
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

/// Values of net::Hello::purpose: for this transport, and for those that build on its connections.
inline constexpr uint32_t kPurpose = 2, kPurposeOfVerbs = 3, kPurposeOfNcclNet = 4;

class Acceptor {
 public:
  /// The maximum number of channels that peers have dialled and this process has not taken.
  static constexpr size_t kMaxAdmitted = 1024;
  /// `streams`: per channel. `encryption`: null for plain connections. While `max_admitted`
  /// channels wait, a peer is not accepted unless there is room or this process awaits it.
  static Result<std::unique_ptr<Acceptor>> start(net::Listener listener, uint32_t streams,
                                                 net::Encryption encryption, const Log& log,
                                                 size_t max_admitted = kMaxAdmitted,
                                                 uint32_t purpose = kPurpose);
  ~Acceptor();
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;

  /// Returns the purpose that a dialling peer must state.
  [[nodiscard]] uint32_t purpose() const { return purpose_; }

  /// A thread inside connect(). While it lives, all peers of its communicator can prove themselves,
  /// not only the one it waits for, because ranks come in any order.
  class Expectation {
   public:
    /// `id` must outlive it.
    Expectation(Acceptor& acceptor, const PeerId& id, const net::Secret& secret);
    ~Expectation();
    Expectation(const Expectation&) = delete;
    Expectation& operator=(const Expectation&) = delete;
    [[nodiscard]] bool valid() const { return bell_.valid(); }
    [[nodiscard]] const PeerId& id() const { return id_; }
    [[nodiscard]] const net::Key& key() const { return key_; }
    /// Polls readable once `take` has something.
    [[nodiscard]] int fd() const { return bell_.get(); }
    /// Returns the wires of the peer's channel in the order of their numbers, once all have come.
    std::optional<std::vector<net::Wire>> take();

   private:
    friend class Acceptor;
    Acceptor& acceptor_;
    const PeerId& id_;
    const net::Key key_;
    const Fd bell_;
  };

  /// Drops channels that peers dialled for rank `self` of `communicator` and that it has not taken.
  /// Thread-safe.
  void forget(uint64_t communicator, int self);

 private:
  using Key = std::tuple<uint64_t, int, int>;  // communicator, self, peer
  // The channel of a visitor that has proven itself. Its peer may end the handshake first, so
  // `forget` must find the channel before it is admitted.
  struct Claim {
    Key key;
    bool forgotten = false;  // guarded by mutex_
  };
  // An accepted connection whose handshake has not ended.
  struct Visitor {
    uint64_t name = 0;
    Fd fd;
    net::ListenHandshake handshake;
    net::SocketAddress peer;
    net::Crowd::Admission seat;  // while it is not proven
    TimePoint since;
    std::shared_ptr<Claim> claim;  // once it is proven
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
  std::shared_ptr<Claim> claim(const net::Hello& hello);
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

  // Used by the thread only.
  net::Crowd unproven_;  // in visitors_
  Visitors visitors_;    // oldest first
  uint64_t next_name_ = 0;
  TimePoint accepts_from_{};    // earliest time, after descriptors had run out
  TimePoint complains_from_{};  // earliest time of the next complaint about that
  TimePoint drops_from_{};      // when to drop channels that peers have abandoned
  net::Refusals refusals_;

  std::mutex mutex_;  // guards the members below
  std::list<Expectation*> expectations_;
  std::vector<std::weak_ptr<Claim>> claims_;
  std::map<Key, std::vector<net::Wire>> admitted_;  // wires that their connect() has yet to take

  std::thread thread_;
};

}  // namespace hetccl::transport::tcp
