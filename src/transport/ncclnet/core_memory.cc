// Registered memory of a transport. Each device tests it before a call depends on it, and every
// connection deregisters it when its registration ends.
#include <fcntl.h>

#include <algorithm>
#include <cerrno>

#include "transport/ncclnet/channel.h"

namespace hetccl::transport::ncclnet {

/// Ends by deregistering the memory on all connections, before the user may unmap it.
class Core::Registered final : public Registration {
 public:
  Registered(std::shared_ptr<Core> core, Known known)
      : core_(std::move(core)), known_(std::make_shared<const Known>(std::move(known))) {}
  ~Registered() override { core_->forget(known_); }
  Registered(const Registered&) = delete;
  Registered& operator=(const Registered&) = delete;
  [[nodiscard]] const std::shared_ptr<const Known>& known() const { return known_; }

 private:
  const std::shared_ptr<Core> core_;
  const std::shared_ptr<const Known> known_;
};

bool Core::reaches_devices() const {
  return std::all_of(devices_.begin(), devices_.end(), [](const Device& device) {
    return (device.properties.pointers & (abi::kPointerCuda | abi::kPointerDmaBuf)) != 0;
  });
}

Result<std::unique_ptr<Registration>> Core::register_memory(const Memory& memory) {
  const bool on_device = memory.kind == MemoryKind::Device;
  if (on_device && !reaches_devices()) return std::unique_ptr<Registration>();
  Fd dmabuf;  // kept for later connections
  if (on_device && memory.dmabuf >= 0) {
    dmabuf = Fd(::fcntl(memory.dmabuf, F_DUPFD_CLOEXEC, 0));
    if (!dmabuf.valid()) return system_error("copying the descriptor of a dma-buf", errno);
  }
  auto made = std::make_unique<Registered>(shared_from_this(),
                                           Known{++last_number_, memory, std::move(dmabuf)});
  for (size_t card = 0; on_device && card < devices_.size(); ++card)
    HETCCL_TRY(try_registration(card, *made->known()));
  known_.add(made->known());
  return std::unique_ptr<Registration>(std::move(made));
}

Status Core::try_registration(size_t card, const Known& known) {
  const Properties& properties = devices_[card].properties;
  if ((known.memory.needs_flush || properties.forces_flush) && !plugin_->calls().can_flush())
    return error(ErrorCode::SystemError, "net plug-in %s has no flush", plugin_->name().c_str());
  Probe& probe = probes_[card];
  const std::lock_guard lock(probe.mutex);
  HETCCL_TRY(open(probe, card, config_.init_timeout_ms));
  return probe.loopback->register_once(known);
}

Status Core::open(Probe& probe, size_t card, const WaitLimit& limit) {
  if (probe.loopback != nullptr) return {};
  const Route route{"this rank", plugin_, devices_[card], &registered};
  HETCCL_ASSIGN(auto made, Loopback::create(route, limit.deadline()));
  HETCCL_TRY(made->finish(limit));
  probe.loopback = std::move(made);
  return {};
}

Status Core::copy(size_t card, void* to, const void* from, size_t bytes, const WaitLimit& limit) {
  const Known* const source = find(from, bytes);
  const Known* const target = find(to, bytes);
  if (source == nullptr || target == nullptr)
    return error(ErrorCode::InvalidArgument, "to, from: memory that is not registered");
  Probe& probe = probes_[card];
  const std::lock_guard lock(probe.mutex);
  HETCCL_TRY(open(probe, card, limit));
  probe.loopback->copy({target, to}, {source, const_cast<void*>(from)}, bytes);
  Status status = probe.loopback->finish(limit);
  if (!status.ok()) probe.loopback.reset();
  return status.with(format("trying %s", devices_[card].properties.name.c_str()));
}

const Known* Core::find(const Parcel& transfer) const {
  return transfer.registered ? find(transfer.data, transfer.bytes) : nullptr;
}

const Known* Core::find(const void* data, size_t bytes) const {
  const auto* const at = static_cast<const std::byte*>(data);
  const auto known = known_.find(at);
  const bool contains = known != nullptr && bytes <= static_cast<size_t>(known->end() - at);
  return contains ? known.get() : nullptr;
}

// Takes each channel's mutex, so that no connection is used by two threads; waits while one moves
// data.
void Core::forget(const std::shared_ptr<const Known>& known) {
  known_.remove(known);
  {
    const std::lock_guard lock(mutex);
    for (NetChannel* channel : channels_) channel->forget(known->number);
  }
  for (Probe& probe : probes_) {
    const std::lock_guard lock(probe.mutex);
    if (probe.loopback != nullptr) probe.loopback->forget(known->number);
  }
}

}  // namespace hetccl::transport::ncclnet
