#include "transport/adaptor/core.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>

#include "transport/adaptor/adaptor_channel.h"

namespace hetccl::transport::adaptors {

using adaptor::ask;

Result<std::shared_ptr<Core>> Core::open(std::shared_ptr<const Part> part,
                                         const std::vector<std::string>& hosts, Address& address) {
  std::vector<const char*> texts;
  for (const std::string& host : hosts) texts.push_back(host.c_str());
  const hetcclTransportSettings settings = {sizeof settings, texts.data(), texts.size()};
  std::shared_ptr<Core> core(new Core(std::move(part)));
  const Part& asked = core->part();
  address.assign(HETCCL_TRANSPORT_ADDRESS_BYTES, 0);
  size_t bytes = 0;
  HETCCL_TRY(ask(asked, "open", [&] {
    return asked.calls.open(&settings, &core->transport_, address.data(), &bytes);
  }));
  if (core->transport_ == nullptr) {
    return error(ErrorCode::SystemError, "%s: open has made no transport, but returned success",
                 asked.name.c_str());
  }
  if (bytes == 0 || bytes > HETCCL_TRANSPORT_ADDRESS_BYTES) {
    return error(ErrorCode::SystemError, "%s: its address has %zu bytes, not 1 to %d",
                 asked.name.c_str(), bytes, HETCCL_TRANSPORT_ADDRESS_BYTES);
  }
  address.resize(bytes);
  HETCCL_TRY(core->watch());
  return core;
}

Core::~Core() {
  if (transport_ == nullptr) return;
  static_cast<void>(ask(*part_, "destroy", [this] {
    part_->calls.destroy(transport_);
    return 0;
  }));
}

Status Core::watch() {
  epoll_ = Fd(::epoll_create1(EPOLL_CLOEXEC));
  bell_ = Fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!epoll_.valid() || !bell_.valid()) return system_error("epoll for an adaptor", errno);
  HETCCL_TRY(ask(*part_, "poll_fd", [&] {
    watched_ = part_->calls.poll_fd(transport_);
    return 0;
  }));
  epoll_event event{};
  event.events = EPOLLIN;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, bell_.get(), &event) != 0)
    return system_error("epoll for an adaptor", errno);
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, watched_, &event) != 0) {
    const int why = errno;
    return system_error(part_->name + ": its poll_fd cannot be polled", why);
  }
  return {};
}

Result<bool> Core::move() {
  HETCCL_TRY(failure_);
  int moved = 0;
  failure_ = ask(*part_, "progress", [&] { return part_->calls.progress(transport_, &moved); });
  if (!failure_.ok()) stop_watching();
  HETCCL_TRY(failure_);
  return moved != 0;
}

// Stops watching the adaptor's descriptor, because a broken adaptor's may stay readable for ever.
void Core::stop_watching() {
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, watched_, nullptr);
}

bool Core::progress() {
  const std::lock_guard lock(mutex);
  if (rung_.exchange(false)) {
    uint64_t rings = 0;
    static_cast<void>(::read(bell_.get(), &rings, sizeof rings));
  }
  const auto result = move();
  bool moved = result.ok() && result.value();
  for (AdaptorChannel* channel : channels)
    moved |= result.ok() ? channel->advance() : channel->fail(result.status());
  return moved;
}

Status Core::move_for_connect() {
  HETCCL_ASSIGN(const bool moved, move());
  if (!moved || rung_.exchange(true)) return {};
  const uint64_t once = 1;
  static_cast<void>(::write(bell_.get(), &once, sizeof once));
  return {};
}

}  // namespace hetccl::transport::adaptors
