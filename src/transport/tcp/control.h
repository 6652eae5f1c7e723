// Authenticated connections for transports that move their data by other means: over such a
// connection the ends agree how, and its end tells that the peer has gone.
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
  /// `transport` is the name for errors, `purpose` one of acceptor.h.
  Control(std::string transport, uint32_t purpose, const Config& config, const Log& log)
      : transport_(std::move(transport)), purpose_(purpose), config_(config), log_(log) {}

  /// Begins to listen. The same address each time.
  Result<Address> listen();

  /// Makes a channel of a connection that is proven.
  using Open = std::function<Result<std::unique_ptr<Channel>>(net::Wire)>;
  /// How a channel to a peer comes about.
  struct Path {
    Address listener;  ///< what the peer's `listen` has returned
    Open open;
  };
  /// Connects as Transport::connect_later does, then opens the channel. A `path` that is an error
  /// is told as any other failure. Thread-safe.
  void connect_later(const PeerId& id, const Result<Path>& path, const net::Secret& secret,
                     const WaitLimit& limit, Transport::Connected connected);
  /// Transport::forget. Thread-safe.
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
