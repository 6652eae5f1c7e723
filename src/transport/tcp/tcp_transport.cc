#include "transport/tcp/tcp_transport.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <set>
#include <utility>

#include "base/cores.h"
#include "base/descriptors.h"
#include "base/exception.h"
#include "transport/tcp/connector.h"
#include "transport/tcp/routes.h"
#include "transport/tcp/tcp_channel.h"

namespace hetccl::transport {

namespace {

using tcp::Connector;
using tcp::Endpoint;
using tcp::Movers;
using tcp::TcpChannel;

// The unsent bytes that a stream's socket may hold if there are other NICs: more than one message
// needs at a wake-up, and half a millisecond at 2 Gbit/s.
constexpr int kUnsentBytes = 128 << 10;

// Defaults to an eighth of the cores, because other ranks and the user's threads need them too.
size_t threads_of(const Config& config) {
  if (config.tcp_threads >= 0) return static_cast<size_t>(config.tcp_threads);
  return static_cast<size_t>(std::min(usable_cores() / 8, 4));
}

// Every thread that moves streams, the engine's included, needs a stream.
uint32_t streams_of(const Config& config) {
  if (config.tcp_streams > 0) return static_cast<uint32_t>(config.tcp_streams);
  return std::max(2U, static_cast<uint32_t>(threads_of(config)) + 1);
}

// A rank may use all NICs of its host; each needs a stream.
uint32_t streams_for(const Config& config, size_t n_cards) {
  constexpr size_t kMost = 8;
  const uint32_t streams = streams_of(config);
  if (config.tcp_streams > 0) return streams;
  return std::max(streams, static_cast<uint32_t>(std::min(n_cards, kMost)));
}

// Descriptors of one channel while it connects: its streams, and the bell.
size_t descriptors_of(uint32_t streams) {
  return size_t{streams} + 1;
}

class TcpTransport final : public Transport {
 public:
  TcpTransport(const Config& config, const Log& log, std::shared_ptr<Movers> movers)
      : config_(config), log_(log), movers_(std::move(movers)) {}

  [[nodiscard]] std::string name() const override { return "tcp"; }
  Result<Address> listen() override;
  void connect_later(const PeerId& id, const Address& address, const std::vector<uint8_t>& secret,
                     const WaitLimit& limit, Connected connected) override;
  Status reserve(size_t channels) override {
    return reserve_descriptors(channels *
                               descriptors_of(std::max(own_.streams, streams_of(config_))));
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
  Status begin(const PeerId& id, const Address& address, const std::vector<uint8_t>& secret,
               const WaitLimit& limit, const Connected& connected);
  Result<std::unique_ptr<Channel>> open(int peer, Connector::Wires wires);

  const Config config_;
  const Log log_;
  const std::shared_ptr<Movers> movers_;
  std::unique_ptr<Connector> connector_;
  Endpoint own_;
  Address address_;
};

Result<Address> TcpTransport::listen() {
  if (connector_) return address_;
  HETCCL_ASSIGN(net::Listener listener, net::listen(config_));
  HETCCL_ASSIGN(const auto interfaces, net::interfaces(config_));
  const auto cards = net::names_of(net::cards_among(interfaces, config_));
  const uint32_t streams = streams_for(config_, cards.size());
  own_ = tcp::endpoint_of(interfaces, cards, listener.port, streams);
  address_ = tcp::encode(own_);
  net::Encryption encryption;
  if (config_.encrypt) {
    HETCCL_ASSIGN(encryption, net::TlsContext::create());
  }
  HETCCL_ASSIGN(auto acceptor,
                tcp::Acceptor::start(std::move(listener), streams, encryption, log_));
  HETCCL_ASSIGN(connector_,
                Connector::create(std::move(acceptor), own_, std::move(encryption), log_));
  return address_;
}

void TcpTransport::connect_later(const PeerId& id, const Address& address,
                                 const std::vector<uint8_t>& secret, const WaitLimit& limit,
                                 Connected connected) {
  const auto told = [peer = id.peer, ms = limit.timeout_ms,
                     connected = std::move(connected)](Result<std::unique_ptr<Channel>> made) {
    if (made.ok()) return connected(std::move(made));
    connected(made.status().with(format("connecting to rank %d over tcp, within %lld ms", peer,
                                        static_cast<long long>(ms))));
  };
  const Status begun = begin(id, address, secret, limit, told);
  if (!begun.ok()) told(begun);
}

Status TcpTransport::begin(const PeerId& id, const Address& address,
                           const std::vector<uint8_t>& secret, const WaitLimit& limit,
                           const Connected& connected) {
  if (!connector_ || id.self == id.peer || secret.empty()) {
    return error(ErrorCode::InvalidArgument, "needs listen() before, another rank, and a secret");
  }
  HETCCL_ASSIGN(const Endpoint endpoint, tcp::decode(address));
  HETCCL_TRY(reserve_descriptors(descriptors_of(endpoint.streams)));
  return connector_->connect(
      id, endpoint, secret, limit, [this, peer = id.peer, connected](auto wires) {
        // Report an exception too, because a caller waits.
        connected(make_or_catch([&] { return open(peer, std::move(wires)); }));
      });
}

Result<std::unique_ptr<Channel>> TcpTransport::open(int peer, Connector::Wires wires) {
  HETCCL_TRY(wires.status());
  std::vector<tcp::CardOf> cards;
  std::set<std::string> names;
  for (const net::Wire& wire : wires.value()) {
    net::keep_alive(wire.fd(), std::chrono::milliseconds(config_.liveness_ms));
    if (tcp::count_cards(own_) < 2) continue;
    cards.push_back(tcp::card_at(net::own_address(wire.fd()), own_));
    names.insert(cards.back().name);
  }
  if (names.size() > 1) {
    for (const net::Wire& wire : wires.value()) net::limit_unsent(wire.fd(), kUnsentBytes);
  }
  HETCCL_ASSIGN(auto channel, TcpChannel::create(peer, std::move(wires).value(), cards, movers_));
  return std::unique_ptr<Channel>(std::move(channel));
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
