#include "transport/verbs/core.h"

#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "transport/verbs/channel.h"
#include "transport/verbs/locked_memory.h"

namespace hetccl::transport::verbs {
namespace {

// While the engine is awake, looks at descriptors only every so many turns: each look is a system
// call.
constexpr uint32_t kTurns = 64;
constexpr size_t kEventsPerTurn = 32;
// A job that may use TCP uses RDMA only if that many channels find all the memory that they want.
constexpr size_t kUsualChannels = 16;

// Lists each device once. Ports of one device follow each other.
std::vector<std::shared_ptr<Device>> devices_of(const std::vector<Port>& ports) {
  std::vector<std::shared_ptr<Device>> devices;
  for (const Port& port : ports)
    if (devices.empty() || devices.back() != port.device) devices.push_back(port.device);
  return devices;
}

}  // namespace

// Completion events of a device. Each belongs to one channel, which must request the next event.
class Core::Completions final : public Watched {
 public:
  explicit Completions(std::shared_ptr<Device> device) : device_(std::move(device)) {}
  void on_readable() override {
    abi::Cq* queue = nullptr;
    void* channel = nullptr;
    while (device_->api().get_cq_event(device_->events(), &queue, &channel) == 0) {
      device_->api().ack_cq_events(queue, 1);
      static_cast<VerbsChannel*>(channel)->disarm();
    }
  }

 private:
  const std::shared_ptr<Device> device_;
};

// Asynchronous events of a device. Destroying a queue waits until its events are acknowledged, so
// both happen with the core's mutex held.
class Core::Failures final : public Watched {
 public:
  Failures(Core& core, std::shared_ptr<Device> device) : core_(core), device_(std::move(device)) {}
  void on_readable() override {
    const Api& api = device_->api();
    abi::AsyncEvent event{};
    while (api.get_async_event(device_->context(), &event) == 0) {
      for (VerbsChannel* channel : core_.channels_) channel->take_event(*device_, event);
      api.ack_async_event(&event);
    }
  }

 private:
  Core& core_;
  const std::shared_ptr<Device> device_;
};

Result<std::shared_ptr<Core>> Core::create(std::vector<Port> ports, const Config& config) {
  Fd epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll.valid()) return system_error("epoll_create1 for RDMA", errno);
  std::shared_ptr<Core> core(new Core(std::move(ports), config, std::move(epoll)));
  if (config.transport.empty())
    HETCCL_TRY(
        core->require(kUsualChannels, kUsualChannels * (core->channel_locks() + 2 * kChunkLocks)));
  else
    HETCCL_TRY(core->reserve(1));
  core->locks_freely_ = verbs::locks_freely(*core->ports_.front().device);
  for (const auto& device : core->registry().devices()) HETCCL_TRY(core->watch_device(device));
  return core;
}

Core::Core(std::vector<Port> ports, const Config& config, Fd epoll)
    : ports_(std::move(ports)),
      config_(config),
      registry_(std::make_shared<Registry>(devices_of(ports_))),
      epoll_(std::move(epoll)) {}

// Checks that the limit leaves room for the channels and two chunks, one to receive and one to
// send. All other chunks can wait for these.
Status Core::reserve(size_t more) {
  const std::lock_guard lock(mutex);
  const size_t channels = channels_.size() + more;
  return require(channels, channels * channel_locks() + 2 * kChunkLocks);
}

Status Core::require(size_t channels, size_t bytes) {
  lockable_ = lockable_bytes(*ports_.front().device, bytes);
  if (lockable_ >= bytes) return {};
  return too_little_lockable(channels, bytes, lockable_);
}

size_t Core::channel_locks() const {
  return kChannelLocks + static_cast<size_t>(config_.rdma_queue_pairs - 1) * kQueueLocks;
}

bool Core::may_grant() const {
  const size_t chunks = writes + grants + 2;  // this one, and one to write
  return grants == 0 || open_ * channel_locks() + chunks * kChunkLocks <= lockable_;
}

Status Core::watch(int fd, Watched& watched) {
  epoll_event event{EPOLLIN | EPOLLRDHUP, {.ptr = &watched}};
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0) return {};
  return system_error("watching a connection for RDMA", errno);
}

Status Core::watch_device(const std::shared_ptr<Device>& device) {
  events_.push_back(std::make_unique<Completions>(device));
  HETCCL_TRY(watch(device->events()->fd, *events_.back()));
  events_.push_back(std::make_unique<Failures>(*this, device));
  return watch(device->context()->async_fd, *events_.back());
}

void Core::unwatch(int fd) {
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

Status Core::add(VerbsChannel& channel, int wire) {
  HETCCL_TRY(watch(wire, channel));
  channels_.push_back(&channel);
  ++open_;
  return {};
}

void Core::remove(VerbsChannel& channel) {
  open_ -= std::erase(channels_, &channel);
}

bool Core::progress() {
  const std::lock_guard lock(mutex);
  if (channels_.empty()) return false;  // no system call
  if (++turn_ % kTurns == 0 || std::exchange(looks_, false)) handle_events();
  if (armed_) arm_all();  // requests new events for those handled just now
  bool moved = false;
  for (VerbsChannel* channel : channels_) moved |= channel->progress();
  return moved;
}

// A completion that arrives before its queue is armed makes no event, so the engine polls once
// more.
void Core::arm(bool on) {
  const std::lock_guard lock(mutex);
  looks_ = true;
  armed_ = on;
  if (on) arm_all();
}

void Core::arm_all() {
  for (VerbsChannel* channel : channels_) channel->arm();
}

void Core::handle_events() {
  std::array<epoll_event, kEventsPerTurn> events;
  const int n = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
  for (int i = 0; i < n; ++i)
    static_cast<Watched*>(events[static_cast<size_t>(i)].data.ptr)->on_readable();
}

}  // namespace hetccl::transport::verbs
