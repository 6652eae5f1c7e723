// Strangers on the network: a flood of connections that never prove themselves, from all addresses
// of 127.0.0.0/8, and an impostor at another's address.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <deque>
#include <thread>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "fake/patience.h"
#include "net/auth.h"
#include "net/socket.h"

namespace hetccl::fake {

using Words = std::vector<uint8_t>;

/// First words of an honest dialer: valid in form, but useless without the secret.
inline Words true_hello(const net::Hello& hello) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) != 0) return {};
  const Fd dialer(ends[0]), listener(ends[1]);
  net::DialHandshake handshake(hello, {net::Secret(net::kSecretBytes, 1)}, nullptr);
  (void)handshake.advance(dialer.get());
  Words words(net::kHelloBytes);
  const ssize_t got = ::recv(listener.get(), words.data(), words.size(), MSG_DONTWAIT);
  words.resize(got > 0 ? static_cast<size_t>(got) : 0);
  return words;
}

/// From construction to destruction: connections to an IPv4 address, each of which says one of
/// `says` (in turn) and stays until it is closed or 600 younger ones have come.
class Flood {
 public:
  struct Options {
    int per_second = 1'000;
    uint32_t sources = 1;  ///< 127.1.0.1, 127.1.0.2, ...
    std::vector<Words> says = {{}};
  };
  Flood(const net::SocketAddress& target, Options options)
      : target_(target), options_(std::move(options)), thread_([this] { run(); }) {}
  ~Flood() {
    stop_ = true;
    thread_.join();
  }
  Flood(const Flood&) = delete;
  Flood& operator=(const Flood&) = delete;
  [[nodiscard]] int count() const { return count_; }

 private:
  static constexpr size_t kHeld = 600;
  static constexpr int kBurst = 32;

  void run() {
    const auto pause = std::chrono::nanoseconds(std::chrono::seconds(1)) / options_.per_second;
    std::deque<Fd> held;
    for (TimePoint next = steady_clock().now(); !stop_; ++count_) {
      held.push_back(come(static_cast<uint32_t>(count_)));
      if (held.size() > kHeld) held.pop_front();
      // After a moment in which it could not run it comes no faster: that would be another flood.
      next = std::max(next + pause, steady_clock().now() - kBurst * pause);
      std::this_thread::sleep_until(next);
    }
  }

  [[nodiscard]] Fd come(uint32_t number) const {
    Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    sockaddr_in from{};
    from.sin_family = AF_INET;
    from.sin_addr.s_addr = htonl((127U << 24U) + (1U << 16U) + 1 + number % options_.sources);
    const int on = 1;
    ::setsockopt(fd.get(), IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on);
    ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&from), sizeof from);
    ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&target_.storage), target_.length());
    const Words& words = options_.says[number % options_.says.size()];
    (void)::send(fd.get(), words.data(), words.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    return fd;
  }

  const net::SocketAddress target_;
  const Options options_;
  std::atomic<bool> stop_{false};
  std::atomic<int> count_{0};
  std::thread thread_;
};

/// Listens on loopback. Gives its first visitors one of `answers` each, as a stranger at that port
/// would, and passes all others on to `behind`.
class Impostor {
 public:
  Impostor(const net::SocketAddress& behind, std::vector<Words> answers)
      : behind_(behind), answers_(std::move(answers)), listener_(net::listen(only_v4()).value()) {
    thread_ = std::thread([this] { run(); });
  }
  ~Impostor() {
    stop_ = true;
    thread_.join();
  }
  Impostor(const Impostor&) = delete;
  Impostor& operator=(const Impostor&) = delete;
  [[nodiscard]] net::SocketAddress address() const { return behind_.with_port(listener_.port); }
  /// Returns how many visitors it has answered itself.
  [[nodiscard]] size_t answered() const { return answered_; }

 private:
  struct Line {
    Fd here, there;
  };

  static Config only_v4() {
    Config config;
    config.socket_family = "inet";
    return config;
  }

  void run() {
    while (!stop_) {
      std::vector<pollfd> entries = {{listener_.fd.get(), POLLIN, 0}};
      for (const Line& line : lines_) {
        entries.push_back({line.here.get(), POLLIN, 0});
        entries.push_back({line.there.get(), POLLIN, 0});
      }
      ::poll(entries.data(), entries.size(), 10);
      std::erase_if(lines_, [](const Line& line) {
        return !pass_on(line.here, line.there) || !pass_on(line.there, line.here);
      });
      auto visitor = net::accept(listener_);
      if (!visitor.ok() || !visitor->valid()) continue;
      if (answered_ < answers_.size()) {
        answer(*visitor, answers_[answered_]);
        ++answered_;
      } else if (auto real = net::connect({behind_}, soon()); real.ok()) {
        lines_.push_back({std::move(*visitor), std::move(*real)});
      }
    }
  }

  static TimePoint soon() { return steady_clock().now() + kHang; }

  static void answer(const Fd& visitor, const Words& words) {
    Words hello(net::kHelloBytes);
    (void)net::recv_all(visitor.get(), hello.data(), hello.size(), soon());
    (void)net::send_all(visitor.get(), words.data(), words.size(), soon());
  }

  // False once `from` has ended.
  static bool pass_on(const Fd& from, const Fd& to) {
    std::array<uint8_t, 4096> bytes;
    const ssize_t got = ::recv(from.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (got < 0) return true;
    return got > 0 && net::send_all(to.get(), bytes.data(), static_cast<size_t>(got), soon()).ok();
  }

  const net::SocketAddress behind_;
  const std::vector<Words> answers_;
  net::Listener listener_;
  std::atomic<size_t> answered_{0};
  std::atomic<bool> stop_{false};
  std::vector<Line> lines_;
  std::thread thread_;
};

/// Answers to a hello that look like a listener's and prove nothing: another secret, another
/// HETCCL_SECRET_FILE, too short.
inline std::vector<Words> wrong_answers() {
  Words wrong_proof(net::kChallengeBytes), other_file(net::kChallengeBytes, 0x5a);
  return {wrong_proof, other_file,  {1, 2, 3},  wrong_proof, other_file,
          {},          wrong_proof, other_file, wrong_proof};
}

}  // namespace hetccl::fake
