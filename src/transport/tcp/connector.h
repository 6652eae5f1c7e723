// Makes the authenticated sockets of channels. The lower rank dials, the higher one awaits what its
// Acceptor accepts, so ranks that connect crosswise never wait for each other in a circle.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/cancel.h"
#include "base/log.h"
#include "net/reminder.h"
#include "transport/tcp/acceptor.h"
#include "transport/tcp/address.h"

namespace hetccl::transport::tcp {

class Connector {
 public:
  /// `own`: where the acceptor listens. `encryption`: null for plain connections.
  Connector(std::unique_ptr<Acceptor> acceptor, const Endpoint& own, net::Encryption encryption,
            const Log& log)
      : acceptor_(std::move(acceptor)),
        where_(net::list_of(own.addresses)),
        encryption_(std::move(encryption)),
        log_(log) {}

  /// What ends `connect`; `cancel` may be null.
  struct Limit {
    TimePoint deadline;
    const Cancel* cancel = nullptr;
    bool patient = false;  ///< the log does not say for how long a peer does not come
    [[nodiscard]] bool cancelled() const { return cancel != nullptr && cancel->is_set(); }
  };
  /// The wires of one channel, in the order of their numbers. Thread-safe.
  Result<std::vector<net::Wire>> connect(const PeerId& id, const Endpoint& peer,
                                         const net::Secret& secret, const Limit& limit);

  /// Drops what peers have dialled for rank `self` of `communicator` and it has not taken.
  /// Thread-safe.
  void forget(uint64_t communicator, int self) { acceptor_->forget(communicator, self); }

 private:
  using Expectation = Acceptor::Expectation;
  struct Dial;
  // One call of `connect`.
  struct Call {
    Expectation& expectation;
    const Limit& limit;
    Log log;
    net::Reminder reminder;
  };

  Result<std::vector<net::Wire>> dial(Call& call, const Endpoint& peer);
  Status dial_streams(Call& call, const Endpoint& peer, std::vector<Dial>& dials);
  static Result<Fd> reach(Call& call, const Endpoint& peer);
  static Status advance(Dial& one);
  Result<std::vector<net::Wire>> await(Call& call);

  const std::unique_ptr<Acceptor> acceptor_;
  const std::string where_;
  const net::Encryption encryption_;
  const Log log_;
};

}  // namespace hetccl::transport::tcp
