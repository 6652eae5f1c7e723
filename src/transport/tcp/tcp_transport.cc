#include "transport/tcp/tcp_transport.h"

#include <algorithm>
#include <chrono>
#include <optional>

#include "base/cores.h"
#include "base/descriptors.h"
#include "transport/tcp/connector.h"
#include "transport/tcp/tcp_channel.h"

namespace hetccl::transport {

namespace {

using tcp::Connector;
using tcp::Endpoint;
using tcp::Movers;
using tcp::TcpChannel;

// By default an eighth of the cores, which are shared with other ranks and the user's threads.
size_t threads_of(const Config& config) {
  if (config.tcp_threads >= 0) return static_cast<size_t>(config.tcp_threads);
  return static_cast<size_t>(std::min(usable_cores() / 8, 4));
}

// Every thread that moves streams, the engine's too, needs one.
uint32_t streams_of(const Config& config) {
  if (config.tcp_streams > 0) return static_cast<uint32_t>(config.tcp_streams);
  return std::max(2U, static_cast<uint32_t>(threads_of(config)) + 1);
}

// Of one channel, while it connects: its streams, and the bell of the thread that waits for them.
size_t descriptors_of(uint32_t streams) {
  return size_t{streams} + 1;
}

class TcpTransport final : public Transport {
 public:
  TcpTransport(const Config& config, const Log& log, std::shared_ptr<Movers> movers)
      : config_(config), log_(log), movers_(std::move(movers)) {}

  [[nodiscard]] std::string name() const override { return "tcp"; }
  Result<Address> listen() override;
  Result<std::unique_ptr<Channel>> connect(const PeerId& id, const Address& address,
                                           const std::vector<uint8_t>& secret,
                                           const WaitLimit& limit) override;
  Status reserve(size_t channels) override {
    return reserve_descriptors(channels * descriptors_of(streams_of(config_)));
  }
  void forget(uint64_t communicator, int self) override {
    if (connector_) connector_->forget(communicator, self);
  }
  bool progress() override { return movers_->engine().progress(); }
  [[nodiscard]] int poll_fd() const override { return movers_->engine().fd(); }
  [[nodiscard]] ShmSource* shm_source() override { return nullptr; }
  [[nodiscard]] uint64_t bytes_sent() const override {
    return movers_->bytes_sent.load(std::memory_order_relaxed);
  }

 private:
  const Config config_;
  const Log log_;
  const std::shared_ptr<Movers> movers_;
  std::optional<Connector> connector_;
  Address address_;
};

Result<Address> TcpTransport::listen() {
  if (connector_) return address_;
  Endpoint endpoint;
  endpoint.streams = streams_of(config_);
  HETCCL_ASSIGN(net::Listener listener, net::listen(config_));
  HETCCL_ASSIGN(const auto interfaces, net::interfaces(config_));
  for (const net::Interface& interface : interfaces)
    endpoint.addresses.push_back(interface.address.with_port(listener.port));
  address_ = tcp::encode(endpoint);
  net::Encryption encryption;
  if (config_.encrypt) {
    HETCCL_ASSIGN(encryption, net::TlsContext::create());
  }
  HETCCL_ASSIGN(auto acceptor,
                tcp::Acceptor::start(std::move(listener), endpoint.streams, encryption, log_));
  connector_.emplace(std::move(acceptor), endpoint, std::move(encryption), log_);
  return address_;
}

Result<std::unique_ptr<Channel>> TcpTransport::connect(const PeerId& id, const Address& address,
                                                       const std::vector<uint8_t>& secret,
                                                       const WaitLimit& limit) {
  const std::string what = format("connecting to rank %d over tcp", id.peer);
  if (!connector_ || id.self == id.peer || secret.empty())
    return error(Code::InvalidArgument, "%s: needs listen() before, another rank, and a secret",
                 what.c_str());
  const auto endpoint = tcp::decode(address);
  if (!endpoint.ok()) return endpoint.status().with(what);
  const Status reserved = reserve_descriptors(descriptors_of(endpoint.value().streams));
  if (!reserved.ok()) return reserved.with(what);
  const TimePoint deadline = steady_clock().now() + std::chrono::milliseconds(limit.timeout_ms);
  auto wires =
      connector_->connect(id, endpoint.value(), secret, {deadline, limit.cancel, limit.patient});
  if (!wires.ok())
    return wires.status().with(
        what + format(", within %lld ms", static_cast<long long>(limit.timeout_ms)));
  for (const net::Wire& wire : wires.value())
    net::keep_alive(wire.fd(), std::chrono::milliseconds(config_.liveness_ms));
  auto channel = TcpChannel::create(id.peer, std::move(wires).value(), movers_);
  if (!channel.ok()) return channel.status().with(what);
  return std::unique_ptr<Channel>(std::move(channel).value());
}

}  // namespace

Result<std::unique_ptr<Transport>> make_tcp_transport(const Config& config, const Log& log) {
  HETCCL_ASSIGN(auto movers,
                Movers::create(threads_of(config), std::chrono::milliseconds(config.liveness_ms)));
  return std::unique_ptr<Transport>(std::make_unique<TcpTransport>(config, log, std::move(movers)));
}

int score_tcp(const ChannelEnd& /*local*/, const ChannelEnd& /*peer*/) {
  return kTcpScore;
}

}  // namespace hetccl::transport
