#include "transport/ncclnet/ncclnet_transport.h"

#include <utility>

#include "base/descriptors.h"
#include "base/joined.h"
#include "transport/ncclnet/channel.h"
#include "transport/ncclnet/fabric.h"
#include "transport/tcp/control.h"

namespace hetccl::transport {
namespace {

using ncclnet::Core;
using ncclnet::Device;
using ncclnet::NetChannel;
using tcp::Control;

// Descriptors that a channel uses while it connects: its connection, the bell that announces it,
// and those of a plug-in over sockets.
constexpr size_t kDescriptors = 5;

class NcclNetTransport final : public Transport {
 public:
  NcclNetTransport(std::shared_ptr<Core> core, std::vector<std::string> lines, const Log& log)
      : core_(std::move(core)),
        lines_(std::move(lines)),
        control_("ncclnet", tcp::kPurposeOfNcclNet, core_->config(), log) {}

  [[nodiscard]] std::string name() const override { return "ncclnet"; }
  Result<Address> listen() override;
  void connect_later(const PeerId& id, const Address& address, const std::vector<uint8_t>& secret,
                     const WaitLimit& limit, Connected connected) override {
    control_.connect_later(id, path_to(id, address), secret, limit, std::move(connected));
  }
  [[nodiscard]] bool can_reach(const Address& peer) const override {
    const auto endpoint = ncclnet::decode(peer);
    return endpoint.ok() && endpoint.value().network == core_->plugin()->name();
  }
  [[nodiscard]] std::vector<std::string> describe() const override { return lines_; }
  Status reserve(size_t channels) override { return reserve_descriptors(channels * kDescriptors); }
  [[nodiscard]] bool registers() const override { return true; }
  Result<std::unique_ptr<Registration>> register_memory(const Memory& memory) override {
    return core_->register_memory(memory);
  }
  [[nodiscard]] bool joins_registrations() const override { return false; }
  [[nodiscard]] size_t n_cards() const override {
    return core_->reaches_devices() ? core_->devices().size() : 0;
  }
  Status copy_by_card(size_t card, void* to, const void* from, size_t bytes,
                      const WaitLimit& limit) override {
    return core_->copy(card, to, from, bytes, limit);
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

  const std::shared_ptr<Core> core_;
  const std::vector<std::string> lines_;
  Control control_;
};

Result<Address> NcclNetTransport::listen() {
  HETCCL_ASSIGN(Address listener, control_.listen());
  return ncclnet::encode({core_->plugin()->name(), core_->devices().size(), std::move(listener)});
}

Result<Control::Path> NcclNetTransport::path_to(const PeerId& id, const Address& address) {
  HETCCL_ASSIGN(ncclnet::Endpoint theirs, ncclnet::decode(address));
  if (theirs.network != core_->plugin()->name())
    return error(ErrorCode::Unsupported, "it has net plug-in %s and this rank has %s",
                 theirs.network.c_str(), core_->plugin()->name().c_str());
  HETCCL_TRY(reserve(1));
  const size_t device =
      ncclnet::choose_device(core_->devices(), net::locate_rank(id.bus), id.self, id.peer);
  const auto open = [core = core_, peer = id.peer,
                     device](net::Wire wire) -> Result<std::unique_ptr<Channel>> {
    HETCCL_ASSIGN(auto channel, NetChannel::create(peer, device, std::move(wire), core));
    return std::unique_ptr<Channel>(std::move(channel));
  };
  return Control::Path{std::move(theirs.listener), open};
}

std::string why_unusable(const Device& device) {
  const ncclnet::Properties& properties = device.properties;
  if ((properties.pointers & ncclnet::abi::kPointerHost) == 0) return "it takes no memory of hosts";
  if (properties.max_comms < 1) return "it takes no connection";
  if (properties.max_bytes < ncclnet::kLeastChunk)
    return format("it takes no more than %zu bytes at a time", properties.max_bytes);
  return "";
}

}  // namespace

Result<std::unique_ptr<Transport>> make_ncclnet_transport(const Config& config, const Log& log) {
  HETCCL_ASSIGN(auto plugin, ncclnet::load_plugin(config.net_plugin, log));
  HETCCL_ASSIGN(const auto devices, plugin->devices());
  std::vector<Device> usable;
  std::vector<std::string> lines;
  for (const Device& device : devices) {
    const std::string reason = why_unusable(device);
    lines.push_back(device.describe() + "; " +
                    (reason.empty() ? plugin->describe() : "not used: " + reason));
    if (reason.empty()) usable.push_back(device);
  }
  if (usable.empty()) return error(ErrorCode::SystemError, "%s", joined(lines).c_str());
  HETCCL_ASSIGN(auto core, Core::create(std::move(plugin), std::move(usable), config));
  return std::unique_ptr<Transport>(
      std::make_unique<NcclNetTransport>(std::move(core), std::move(lines), log));
}

int score_ncclnet(const ChannelEnd& local, const ChannelEnd& peer) {
  return local.host != peer.host ? kNcclNetScore : 0;
}

}  // namespace hetccl::transport
