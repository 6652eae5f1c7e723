#include "comm/wiretap.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <doctest/doctest.h>
#include <poll.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "base/config.h"
#include "fake/thread.h"

namespace hetccl::comm {

namespace {

std::atomic<Wiretap*> current{nullptr};

using Connect = int (*)(int, const sockaddr*, socklen_t);

Connect real_connect() {
  static const auto found = reinterpret_cast<Connect>(::dlsym(RTLD_NEXT, "connect"));
  return found;
}

uint16_t port_of(const sockaddr_storage& address) {
  return ntohs(address.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                   : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

sockaddr_storage with_port(sockaddr_storage address, uint16_t port) {
  if (address.ss_family == AF_INET6)
    reinterpret_cast<sockaddr_in6&>(address).sin6_port = htons(port);
  else
    reinterpret_cast<sockaddr_in&>(address).sin_port = htons(port);
  return address;
}

uint16_t local_port(int fd) {
  sockaddr_storage local{};
  socklen_t length = sizeof local;
  ::getsockname(fd, reinterpret_cast<sockaddr*>(&local), &length);
  return port_of(local);
}

}  // namespace

Wiretap::Wiretap() {
  auto listening = net::listen(Config());
  REQUIRE(listening.ok());
  listener_ = std::move(listening).value();
  acceptor_ = fake::Thread([this] { accept_all(); });
  current = this;
}

Wiretap::~Wiretap() {
  current = nullptr;
  {
    std::lock_guard lock(mutex_);
    ending_ = true;
    changed_.notify_all();
    for (Line& line : lines_)
      for (const Fd& end : line.ends) ::shutdown(end.get(), SHUT_RDWR);
  }
  acceptor_.join();
  for (fake::Thread& carrier : carriers_) carrier.join();
}

int Wiretap::redirect(int fd, const sockaddr_storage& wanted) {
  const sockaddr_storage tap = with_port(wanted, listener_.port);
  const auto length = wanted.ss_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  const int result =
      real_connect()(fd, reinterpret_cast<const sockaddr*>(&tap), static_cast<socklen_t>(length));
  const int why = errno;
  std::lock_guard lock(mutex_);
  wanted_[local_port(fd)] = wanted;
  changed_.notify_all();
  errno = why;
  return result;
}

void Wiretap::accept_all() {
  for (;;) {
    pollfd entry{listener_.fd.get(), POLLIN, 0};
    ::poll(&entry, 1, 20);
    std::unique_lock lock(mutex_);
    if (ending_) return;
    auto accepted = net::accept(listener_);
    if (!accepted.ok() || !accepted->valid()) continue;
    const auto from = net::peer_address(accepted->get());
    const uint16_t port = port_of(from.storage);
    changed_.wait_for(lock, fake::kHang, [&] { return ending_ || wanted_.contains(port); });
    const auto wanted = wanted_.extract(port);
    if (wanted.empty()) continue;
    const sockaddr_storage& target = wanted.mapped();
    Fd far(::socket(target.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const auto length = target.ss_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
    if (real_connect()(far.get(), reinterpret_cast<const sockaddr*>(&target),
                       static_cast<socklen_t>(length)) != 0)
      continue;
    Line& line = lines_.emplace_back();
    line.ends[0] = std::move(accepted).value();
    line.ends[1] = std::move(far);
    line.port = port_of(target);
    for (int from_end = 0; from_end < 2; ++from_end)
      carriers_.emplace_back([this, &line, from_end] { carry(line, from_end); });
  }
}

void Wiretap::carry(Line& line, int from) {
  const int in = line.ends[from].get(), out = line.ends[1 - from].get();
  std::vector<uint8_t> bytes(64 << 10);
  for (;;) {
    pollfd entry{in, POLLIN, 0};
    ::poll(&entry, 1, -1);
    const ssize_t got = ::recv(in, bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (got <= 0) break;
    const auto n = static_cast<size_t>(got);
    {
      std::lock_guard lock(mutex_);
      line.said[from].insert(line.said[from].end(), bytes.begin(), bytes.begin() + got);
      if (std::exchange(line.falsify, false)) bytes[n / 2] ^= 0x10;
    }
    if (!net::send_all(out, bytes.data(), n, steady_clock().now() + fake::kHang).ok()) break;
  }
  ::shutdown(out, SHUT_WR);
}

bool Wiretap::has_seen(std::string_view bytes) {
  std::lock_guard lock(mutex_);
  return std::any_of(lines_.begin(), lines_.end(), [&](const Line& line) {
    return std::any_of(std::begin(line.said), std::end(line.said), [&](const auto& said) {
      return std::search(said.begin(), said.end(), bytes.begin(), bytes.end()) != said.end();
    });
  });
}

size_t Wiretap::bytes_seen() {
  std::lock_guard lock(mutex_);
  size_t bytes = 0;
  for (const Line& line : lines_) bytes += line.said[0].size() + line.said[1].size();
  return bytes;
}

std::vector<uint8_t> Wiretap::first_dialer() {
  std::lock_guard lock(mutex_);
  return lines_.empty() ? std::vector<uint8_t>() : lines_.front().said[0];
}

void Wiretap::falsify(uint16_t port, bool other) {
  std::lock_guard lock(mutex_);
  for (Line& line : lines_) line.falsify = (line.port == port) != other;
}

}  // namespace hetccl::comm

// Takes the place of the C library's, for this program.
extern "C" [[gnu::visibility("default")]] int connect(int fd, const sockaddr* address,
                                                      socklen_t length) {
  namespace comm = hetccl::comm;
  comm::Wiretap* tap = comm::current;
  const bool tcp = address->sa_family == AF_INET || address->sa_family == AF_INET6;
  if (tap == nullptr || !tcp) return comm::real_connect()(fd, address, length);
  sockaddr_storage wanted{};
  std::memcpy(&wanted, address, std::min<size_t>(length, sizeof wanted));
  return tap->redirect(fd, wanted);
}
