#include "transport/tcp/control.h"

#include <chrono>
#include <utility>

#include "base/exception.h"
#include "net/path.h"

namespace hetccl::transport::tcp {

Result<Address> Control::listen() {
  if (connector_) return address_;
  HETCCL_ASSIGN(net::Listener listener, net::listen(config_));
  HETCCL_ASSIGN(const auto interfaces, net::interfaces(config_));
  const Endpoint endpoint = endpoint_of(interfaces, {}, listener.port, 1);
  address_ = encode(endpoint);
  net::Encryption encryption;
  if (config_.encrypt) {
    HETCCL_ASSIGN(encryption, net::TlsContext::create());
  }
  HETCCL_ASSIGN(auto acceptor, Acceptor::start(std::move(listener), endpoint.streams, encryption,
                                               log_, Acceptor::kMaxAdmitted, purpose_));
  HETCCL_ASSIGN(connector_,
                Connector::create(std::move(acceptor), endpoint, std::move(encryption), log_));
  return address_;
}

void Control::connect_later(const PeerId& id, const Result<Path>& path, const net::Secret& secret,
                            const WaitLimit& limit, Transport::Connected connected) {
  const auto told = [peer = id.peer, ms = limit.timeout_ms, name = transport_,
                     connected = std::move(connected)](Result<std::unique_ptr<Channel>> made) {
    if (made.ok()) return connected(std::move(made));
    connected(made.status().with(format("connecting to rank %d over %s, within %lld ms", peer,
                                        name.c_str(), static_cast<long long>(ms))));
  };
  const Status begun =
      path.ok() ? begin(id, path.value(), secret, limit, told) : Status(path.status());
  if (!begun.ok()) told(begun);
}

Status Control::begin(const PeerId& id, const Path& path, const net::Secret& secret,
                      const WaitLimit& limit, const Transport::Connected& connected) {
  if (!connector_ || id.self == id.peer || secret.empty()) {
    return error(ErrorCode::InvalidArgument, "needs listen() before, another rank, and a secret");
  }
  HETCCL_ASSIGN(const Endpoint endpoint, decode(path.listener));
  const auto open = [open = path.open, liveness = config_.liveness_ms](
                        Connector::Wires wires) -> Result<std::unique_ptr<Channel>> {
    HETCCL_TRY(wires.status());
    net::Wire wire = std::move(wires.value().front());
    net::keep_alive(wire.fd(), std::chrono::milliseconds(liveness));
    return open(std::move(wire));
  };
  return connector_->connect(id, endpoint, secret, limit, [open, connected](auto wires) {
    // Report an exception too, because a caller waits.
    connected(make_or_catch([&] { return open(std::move(wires)); }));
  });
}

}  // namespace hetccl::transport::tcp
