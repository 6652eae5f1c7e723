#include "transport/tcp/tcp_transport.h"

#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <optional>

#include "transport/tcp/connector.h"
#include "transport/tcp/tcp_channel.h"

namespace hetccl::transport {

namespace {

using tcp::Connector;
using tcp::Endpoint;
using tcp::Poller;
using tcp::TcpChannel;

// What one call of progress() may move: one thread drives many ranks.
constexpr size_t kProgressBudget = 1 << 20;

class TcpTransport final : public Transport {
 public:
  TcpTransport(const Config& config, const Log& log, std::shared_ptr<Poller> poller)
      : config_(config), log_(log), poller_(std::move(poller)) {}

  [[nodiscard]] std::string name() const override { return "tcp"; }
  Result<Address> listen() override;
  Result<std::unique_ptr<Channel>> connect(const PeerId& id, const Address& address,
                                           const std::vector<uint8_t>& secret,
                                           const WaitLimit& limit) override;
  void forget(uint64_t communicator, int self) override {
    if (connector_) connector_->forget(communicator, self);
  }
  bool progress() override;
  [[nodiscard]] int poll_fd() const override { return poller_->epoll.get(); }
  [[nodiscard]] ShmSource* shm_source() override { return nullptr; }
  [[nodiscard]] uint64_t bytes_sent() const override {
    return poller_->bytes_sent.load(std::memory_order_relaxed);
  }

 private:
  const Config config_;
  const Log log_;
  const std::shared_ptr<Poller> poller_;
  std::optional<Connector> connector_;
  Address address_;
  size_t turn_ = 0;
};

Result<Address> TcpTransport::listen() {
  if (connector_) return address_;
  Endpoint endpoint;
  endpoint.streams =
      static_cast<uint32_t>(std::clamp<int64_t>(config_.tcp_streams, 1, tcp::kMaxStreams));
  HETCCL_ASSIGN(net::Listener listener, net::listen(config_));
  HETCCL_ASSIGN(const auto interfaces, net::interfaces(config_));
  for (const net::Interface& interface : interfaces)
    endpoint.addresses.push_back(interface.address.with_port(listener.port));
  address_ = tcp::encode(endpoint);
  net::Encryption encryption;
  if (config_.encrypt) {
    HETCCL_ASSIGN(encryption, net::TlsContext::create());
  }
  connector_.emplace(std::move(listener), endpoint.streams, std::move(encryption), log_);
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
  const TimePoint deadline = steady_clock().now() + std::chrono::milliseconds(limit.timeout_ms);
  auto wires = connector_->connect(id, endpoint.value(), secret, {deadline, limit.cancel});
  if (!wires.ok())
    return wires.status().with(
        what + format(", within %lld ms", static_cast<long long>(limit.timeout_ms)));
  auto channel = TcpChannel::create(id.peer, std::move(wires).value(), poller_);
  if (!channel.ok()) return channel.status().with(what);
  return std::unique_ptr<Channel>(std::move(channel).value());
}

bool TcpTransport::progress() {
  if (poller_->watched.load(std::memory_order_acquire) == 0) return false;
  std::lock_guard lock(poller_->mutex);
  std::array<epoll_event, 64> events;
  const int ready =
      ::epoll_wait(poller_->epoll.get(), events.data(), static_cast<int>(events.size()), 0);
  if (ready <= 0) return false;
  size_t budget = kProgressBudget;
  bool moved = false;
  // Starts elsewhere each time, so that a busy stream cannot spend the budget of all others for
  // ever.
  const auto count = static_cast<size_t>(ready);
  const size_t first = turn_++ % count;
  for (size_t i = 0; i < count && budget > 0; ++i) {
    const epoll_event& event = events[(first + i) % count];
    moved |= static_cast<tcp::Watched*>(event.data.ptr)->on_events(event.events, &budget);
  }
  return moved;
}

}  // namespace

Result<std::unique_ptr<Transport>> make_tcp_transport(const Config& config, const Log& log) {
  auto poller = std::make_shared<Poller>();
  poller->epoll = Fd(::epoll_create1(EPOLL_CLOEXEC));
  if (!poller->epoll.valid()) return system_error("epoll_create1 for transport tcp", errno);
  return std::unique_ptr<Transport>(std::make_unique<TcpTransport>(config, log, std::move(poller)));
}

}  // namespace hetccl::transport
