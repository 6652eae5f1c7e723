#include "transport/verbs/verbs_transport.h"

#include <utility>

#include "base/descriptors.h"
#include "transport/tcp/control.h"
#include "transport/verbs/channel.h"
#include "transport/verbs/fabric.h"

namespace hetccl::transport {
namespace {

using tcp::Control;
using verbs::Core;
using verbs::VerbsChannel;

// Of a channel while it connects: its connection, and the bell that tells that it is there.
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
  void forget(uint64_t communicator, int self) override { control_.forget(communicator, self); }
  bool progress() override { return core_->progress(); }
  [[nodiscard]] int poll_fd() const override { return core_->fd(); }
  [[nodiscard]] ShmSource* shm_source() override { return nullptr; }
  [[nodiscard]] uint64_t bytes_sent() const override {
    return core_->bytes_sent.load(std::memory_order_relaxed);
  }

 private:
  Result<Control::Path> path_to(const PeerId& id, const Address& address);
  Result<std::unique_ptr<Channel>> open(int peer, const verbs::Port& port, net::Wire wire);
  [[nodiscard]] std::vector<verbs::Offer> offers() const;

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
  return endpoint.ok() && verbs::choose_pair(offers(), endpoint.value().offers, 0, 1).has_value();
}

void VerbsTransport::connect_later(const PeerId& id, const Address& address,
                                   const std::vector<uint8_t>& secret, const WaitLimit& limit,
                                   Connected connected) {
  control_.connect_later(id, path_to(id, address), secret, limit, std::move(connected));
}

Result<Control::Path> VerbsTransport::path_to(const PeerId& id, const Address& address) {
  HETCCL_ASSIGN(verbs::Endpoint theirs, verbs::decode(address));
  const auto pair = verbs::choose_pair(offers(), theirs.offers, id.self, id.peer);
  if (!pair) return error(ErrorCode::Unsupported, "no two ports can reach each other");
  HETCCL_TRY(reserve(1));
  const verbs::Port& port = core_->ports()[pair->first];
  return Control::Path{std::move(theirs.listener), [this, peer = id.peer, &port](net::Wire wire) {
                         return open(peer, port, std::move(wire));
                       }};
}

Result<std::unique_ptr<Channel>> VerbsTransport::open(int peer, const verbs::Port& port,
                                                      net::Wire wire) {
  HETCCL_ASSIGN(auto channel, VerbsChannel::create(peer, port, std::move(wire), core_));
  return std::unique_ptr<Channel>(std::move(channel));
}

}  // namespace

Result<std::unique_ptr<Transport>> make_verbs_transport(const Config& config, const Log& log) {
  HETCCL_ASSIGN(auto api, verbs::load_library());
  return make_verbs_transport(std::move(api), config, log);
}

Result<std::unique_ptr<Transport>> make_verbs_transport(std::shared_ptr<const verbs::Api> api,
                                                        const Config& config, const Log& log) {
  HETCCL_ASSIGN(auto ports, verbs::find_ports(api, config));
  std::vector<std::string> lines;
  std::string reasons;
  for (const verbs::Port& port : ports) {
    lines.push_back(port.describe());
    reasons += (reasons.empty() ? "" : "; ") + lines.back();
  }
  std::erase_if(ports, [](const verbs::Port& port) { return !port.unusable.empty(); });
  if (ports.empty()) return error(ErrorCode::Unsupported, "%s", reasons.c_str());
  if (ports.size() > verbs::kMaxOffers) ports.resize(verbs::kMaxOffers);
  HETCCL_ASSIGN(auto core, Core::create(std::move(ports), config));
  return std::unique_ptr<Transport>(
      std::make_unique<VerbsTransport>(std::move(lines), log, std::move(core)));
}

int score_verbs(const ChannelEnd& local, const ChannelEnd& peer) {
  return local.host != peer.host ? kVerbsScore : 0;
}

}  // namespace hetccl::transport
