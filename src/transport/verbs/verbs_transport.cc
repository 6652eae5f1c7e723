#include "transport/verbs/verbs_transport.h"

#include <algorithm>
#include <utility>

#include "base/descriptors.h"
#include "base/joined.h"
#include "transport/tcp/control.h"
#include "transport/verbs/channel.h"
#include "transport/verbs/fabric.h"

namespace hetccl::transport {
namespace {

using tcp::Control;
using verbs::Core;
using verbs::VerbsChannel;

// Descriptors that a channel uses while it connects: its connection, and the bell that announces
// it.
constexpr size_t kDescriptors = 2;

class VerbsTransport final : public Transport {
 public:
  VerbsTransport(std::vector<std::string> ports, const Log& log, std::shared_ptr<Core> core)
      : ports_(std::move(ports)),
        core_(std::move(core)),
        control_("verbs", tcp::kPurposeOfVerbs, core_->config(), log) {}

  [[nodiscard]] std::string name() const override { return "verbs"; }
  Result<Address> listen() override;
  void connect_later(const PeerId& id, const Address& address, const std::vector<uint8_t>& secret,
                     const WaitLimit& limit, Connected connected) override;
  [[nodiscard]] bool can_reach(const Address& peer) const override;
  [[nodiscard]] std::vector<std::string> describe() const override { return ports_; }
  Status reserve(size_t channels) override {
    HETCCL_TRY(reserve_descriptors(channels * kDescriptors));
    return core_->reserve(channels);
  }
  [[nodiscard]] bool registers() const override { return true; }
  Result<std::unique_ptr<Registration>> register_memory(const Memory& memory) override {
    if (memory.kind == MemoryKind::Host && !core_->locks_freely())
      return error(ErrorCode::Unsupported, "the process may lock no memory beyond its chunks");
    return core_->registry().add(memory);
  }
  [[nodiscard]] size_t n_cards() const override { return core_->registry().devices().size(); }
  Status copy_by_card(size_t card, void* to, const void* from, size_t bytes,
                      const WaitLimit& limit) override;
  void forget(uint64_t communicator, int self) override { control_.forget(communicator, self); }
  bool progress() override { return core_->progress(); }
  void arm(bool on) override { core_->arm(on); }
  [[nodiscard]] int poll_fd() const override { return core_->fd(); }
  [[nodiscard]] ShmSource* shm_source() override { return nullptr; }
  [[nodiscard]] uint64_t bytes_sent() const override {
    return core_->bytes_sent.load(std::memory_order_relaxed);
  }

 private:
  Result<Control::Path> path_to(const PeerId& id, const Address& address);
  [[nodiscard]] std::vector<verbs::Offer> offers() const;
  // Ranks agree here, because all have the same HETCCL_TRANSPORT.
  [[nodiscard]] verbs::Reach least_reach() const {
    return core_->config().transport.empty() ? verbs::Reach::Routed : verbs::Reach::Named;
  }

  const std::vector<std::string> ports_;
  const std::shared_ptr<Core> core_;
  Control control_;
};

std::vector<verbs::Offer> VerbsTransport::offers() const {
  std::vector<verbs::Offer> offers;
  for (const verbs::Port& port : core_->ports()) offers.push_back(verbs::offer_of(port));
  return offers;
}

Result<Address> VerbsTransport::listen() {
  HETCCL_ASSIGN(Address listener, control_.listen());
  return verbs::encode(verbs::Endpoint{offers(), std::move(listener)});
}

bool VerbsTransport::can_reach(const Address& peer) const {
  const auto endpoint = verbs::decode(peer);
  return endpoint.ok() &&
         verbs::choose_pair({0, 1, offers(), endpoint.value().offers, least_reach()}).has_value();
}

void VerbsTransport::connect_later(const PeerId& id, const Address& address,
                                   const std::vector<uint8_t>& secret, const WaitLimit& limit,
                                   Connected connected) {
  control_.connect_later(id, path_to(id, address), secret, limit, std::move(connected));
}

Result<Control::Path> VerbsTransport::path_to(const PeerId& id, const Address& address) {
  HETCCL_ASSIGN(verbs::Endpoint theirs, verbs::decode(address));
  verbs::Ends ends{id.self,       id.peer,
                   offers(),      std::move(theirs.offers),
                   least_reach(), static_cast<uint8_t>(core_->config().rdma_queue_pairs)};
  if (!verbs::choose_pair(ends))
    return error(ErrorCode::Unsupported,
                 "no two RDMA ports of the ranks are in networks that reach each other: name "
                 "others with HETCCL_RDMA_DEVICES, or set HETCCL_TRANSPORT=tcp");
  HETCCL_TRY(reserve(1));
  const net::BusLocation place = net::locate_rank(id.bus);
  for (size_t i = 0; i < ends.own.size(); ++i)
    ends.own[i].distance =
        static_cast<uint8_t>(net::distance_between(place, core_->ports()[i].place));
  const auto open = [core = core_,
                     ends = std::move(ends)](net::Wire wire) -> Result<std::unique_ptr<Channel>> {
    HETCCL_ASSIGN(auto channel, VerbsChannel::create(ends, std::move(wire), core));
    return std::unique_ptr<Channel>(std::move(channel));
  };
  return Control::Path{std::move(theirs.listener), open};
}

Status VerbsTransport::copy_by_card(size_t card, void* to, const void* from, size_t bytes,
                                    const WaitLimit& limit) {
  const verbs::Registry& known = core_->registry();
  const auto& device = known.devices()[card];
  const auto port = std::find_if(core_->ports().begin(), core_->ports().end(),
                                 [&](const verbs::Port& one) { return one.device == device; });
  const verbs::Piece source = known.find(static_cast<const std::byte*>(from));
  const verbs::Piece target = known.find(static_cast<const std::byte*>(to));
  if (source == nullptr || target == nullptr)
    return error(ErrorCode::InvalidArgument, "to, from: memory that is not registered");
  const auto part = [&](size_t length) {
    return verbs::abi::Sge{reinterpret_cast<uintptr_t>(from), static_cast<uint32_t>(length),
                           source->region(card).local_key()};
  };
  const uint32_t key = target->region(card).remote_key();
  const auto copy = [&]() -> Status {
    HETCCL_ASSIGN(auto loopback, verbs::Loopback::create(*port, core_->config(), nullptr));
    HETCCL_TRY(loopback->write(part(bytes), to, key));
    HETCCL_TRY(loopback->finish(limit));
    if (!target->needs_flush()) return {};
    HETCCL_TRY(loopback->read(part(1), to, key));  // reads the byte as it is
    return loopback->finish(limit);
  };
  return copy().with(format("trying %s", port->name.c_str()));
}

// Makes registered memory survive a fork. Otherwise, on kernels that do not copy such memory for
// the child at once, the parent gets a copy of a registered page when it next writes there, and the
// device goes on with the page that the child has.
void prepare_for_forks(const verbs::Api& api, const Log& log) {
  if (api.is_fork_initialized != nullptr && api.is_fork_initialized() != verbs::abi::kForkDisabled)
    return;
  const int failure = api.fork_init();
  if (failure != 0)
    log.warn(
        "RDMA is not safe if this process forks (%s): another library has used libibverbs before. "
        "Set RDMAV_FORK_SAFE=1, or do not fork",
        system_error("ibv_fork_init", failure).message().c_str());
}

// The most ports that a rank offers to its peers: the fastest ones.
void drop_slowest(std::vector<verbs::Port>& ports) {
  std::vector<verbs::Port*> usable;
  for (verbs::Port& port : ports) {
    if (port.unusable.empty()) usable.push_back(&port);
  }
  std::stable_sort(usable.begin(), usable.end(),
                   [](const verbs::Port* a, const verbs::Port* b) { return a->mbps > b->mbps; });
  for (size_t i = verbs::kMaxOffers; i < usable.size(); ++i)
    usable[i]->unusable =
        format("a rank uses %zu ports (HETCCL_RDMA_DEVICES chooses which)", verbs::kMaxOffers);
}

}  // namespace

Result<std::unique_ptr<Transport>> make_verbs_transport(const Config& config, const Log& log) {
  HETCCL_ASSIGN(auto api, verbs::load_library());
  return make_verbs_transport(std::move(api), config, log);
}

Result<std::unique_ptr<Transport>> make_verbs_transport(std::shared_ptr<const verbs::Api> api,
                                                        const Config& config, const Log& log) {
  prepare_for_forks(*api, log);
  HETCCL_ASSIGN(auto ports, verbs::find_ports(api, config));
  drop_slowest(ports);
  std::vector<std::string> lines;
  bool excluded = false;
  for (const verbs::Port& port : ports) {
    lines.push_back(port.describe());
    excluded = excluded || port.excluded;
  }
  std::erase_if(ports, [](const verbs::Port& port) { return !port.unusable.empty(); });
  if (ports.empty())
    return error(excluded ? ErrorCode::InvalidArgument : ErrorCode::SystemError, "%s",
                 joined(lines).c_str());
  HETCCL_ASSIGN(auto core, Core::create(std::move(ports), config));
  return std::unique_ptr<Transport>(
      std::make_unique<VerbsTransport>(std::move(lines), log, std::move(core)));
}

int score_verbs(const ChannelEnd& local, const ChannelEnd& peer) {
  return local.host != peer.host ? kVerbsScore : 0;
}

}  // namespace hetccl::transport
