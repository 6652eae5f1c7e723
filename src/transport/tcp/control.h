// Authenticated connections for transports that move data by other means. The ends set up their
// channel over the connection, and its end shows that the peer has gone.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/config.h"
#include "base/log.h"
#include "net/wire.h"
#include "transport/tcp/connector.h"
#include "transport/transport.h"

namespace hetccl::transport::tcp {

class Control {
 public:
  /// `transport` is the name in errors, `purpose` one of acceptor.h.
  Control(std::string transport, uint32_t purpose, const Config& config, const Log& log)
      : transport_(std::move(transport)), purpose_(purpose), config_(config), log_(log) {}

  /// Starts to listen. Returns the same address each time.
  Result<Address> listen();

  /// Makes a channel from a proven connection.
  using Open = std::function<Result<std::unique_ptr<Channel>>(net::Wire)>;
  /// How to connect to a peer.
  struct Path {
    Address listener;  ///< the result of the peer's `listen`
    Open open;
  };
  /// Connects like Transport::connect_later, then opens the channel. An error in `path` is reported
  /// like any other failure. Thread-safe.
  void connect_later(const PeerId& id, const Result<Path>& path, const net::Secret& secret,
                     const WaitLimit& limit, Transport::Connected connected);
  /// See Transport::forget. Thread-safe.
  void forget(uint64_t communicator, int self) {
    if (connector_) connector_->forget(communicator, self);
  }

 private:
  Status begin(const PeerId& id, const Path& path, const net::Secret& secret,
               const WaitLimit& limit, const Transport::Connected& connected);

  const std::string transport_;
  const uint32_t purpose_;
  const Config config_;
  const Log log_;
  std::unique_ptr<Connector> connector_;
  Address address_;
};

}  // namespace hetccl::transport::tcp
