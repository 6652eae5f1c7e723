#include "transport/verbs/core.h"

#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "transport/verbs/channel.h"
#include "transport/verbs/locked_memory.h"

namespace hetccl::transport::verbs {
namespace {

// While completions come in a row, sockets are looked at this seldom: each look is a system call.
constexpr uint32_t kTurns = 64;
constexpr size_t kEventsPerTurn = 32;

// Each once: ports of one device follow each other.
std::vector<std::shared_ptr<Device>> devices_of(const std::vector<Port>& ports) {
  std::vector<std::shared_ptr<Device>> devices;
  for (const Port& port : ports)
    if (devices.empty() || devices.back() != port.device) devices.push_back(port.device);
  return devices;
}

}  // namespace

// The completion events of a device: each belongs to a channel, which has to ask for the next.
class Core::Events final : public Watched {
 public:
  explicit Events(std::shared_ptr<Device> device) : device_(std::move(device)) {}
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

Result<std::shared_ptr<Core>> Core::create(std::vector<Port> ports, const Config& config) {
  Fd epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll.valid()) return system_error("epoll_create1 for RDMA", errno);
  std::shared_ptr<Core> core(new Core(std::move(ports), config, std::move(epoll)));
  HETCCL_TRY(core->reserve(1));
  for (const auto& device : core->registry().devices()) {
    core->events_.push_back(std::make_unique<Events>(device));
    HETCCL_TRY(core->watch(device->events()->fd, *core->events_.back()));
  }
  return core;
}

Core::Core(std::vector<Port> ports, const Config& config, Fd epoll)
    : ports_(std::move(ports)),
      config_(config),
      registry_(std::make_shared<Registry>(devices_of(ports_))),
      epoll_(std::move(epoll)) {}

Status Core::reserve(size_t more) {
  const std::lock_guard lock(mutex);
  return check_locked_memory((channels_.size() + more) * VerbsChannel::kLockedBytes, more);
}

Status Core::watch(int fd, Watched& watched) {
  epoll_event event{EPOLLIN | EPOLLRDHUP, {.ptr = &watched}};
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0) return {};
  return system_error("watching a connection for RDMA", errno);
}

void Core::unwatch(int fd) {
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

Status Core::add(VerbsChannel& channel, int wire) {
  HETCCL_TRY(watch(wire, channel));
  channels_.push_back(&channel);
  return {};
}

void Core::remove(VerbsChannel& channel) {
  std::erase(channels_, &channel);
}

bool Core::progress() {
  const std::lock_guard lock(mutex);
  bool moved = false;
  for (VerbsChannel* channel : channels_) moved |= channel->progress();
  if (moved && ++turn_ % kTurns != 0) return true;
  moved |= handle_events();
  return moved || arm_all();
}

bool Core::handle_events() {
  if (channels_.empty()) return false;  // no system call
  std::array<epoll_event, kEventsPerTurn> events;
  const int n = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
  for (int i = 0; i < n; ++i)
    static_cast<Watched*>(events[static_cast<size_t>(i)].data.ptr)->on_readable();
  return n > 0;
}

// A completion that comes before a queue is armed makes no event: it is looked for afterwards.
bool Core::arm_all() {
  bool moved = false;
  for (VerbsChannel* channel : channels_) moved |= channel->arm() && channel->progress();
  return moved;
}

}  // namespace hetccl::transport::verbs
