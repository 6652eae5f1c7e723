#include "bootstrap/dial.h"

#include <poll.h>

#include <algorithm>
#include <array>
#include <chrono>

#include "base/joined.h"
#include "bootstrap/coordinator.h"
#include "net/auth.h"
#include "net/reminder.h"

namespace hetccl::bootstrap {

namespace {

using std::chrono::milliseconds;

// After this many refusals the log tells the user, long before the deadline.
constexpr int kRefusals = 5;
constexpr milliseconds kFirstPause(10), kLongestPause(200);

bool same(const net::SocketAddress& a, const net::SocketAddress& b) {
  std::array<uint8_t, net::SocketAddress::kEncodedBytes> left, right;
  a.encode(left.data());
  b.encode(right.data());
  return left == right;
}

struct Candidate {
  net::SocketAddress address;
  Status refusal;  // the last one
};

class Dialer {
 public:
  Dialer(const Invitation& invitation, const DialOptions& options)
      : options_(options), hello_{kPurpose, 0, invitation.communicator, options.rank} {
    for (const net::SocketAddress& address : invitation.addresses)
      candidates_.push_back({address, {}});
  }

  Result<net::Wire> dial() {
    for (;;) {
      auto connected = connect();
      if (!connected.ok()) return connected.status();
      const net::SocketAddress peer = net::peer_address(connected->get());
      const TimePoint until = std::min(options_.deadline, steady_clock().now() + options_.patience);
      bool proven = false;
      auto wire = net::dial_handshake(std::move(*connected), hello_, options_.key,
                                      options_.encryption, until, &proven);
      if (wire.ok()) return wire;
      // The job's coordinator has answered, so another try would end the same way.
      if (proven && wire.status().code() == ErrorCode::InvalidUsage) return wire;
      note_refusal(peer, wire.status());
      if (is_cancelled()) return options_.cancel->reason();
      if (steady_clock().now() >= options_.deadline) return refused();
      pause();
    }
  }

 private:
  [[nodiscard]] bool is_cancelled() const {
    return options_.cancel != nullptr && options_.cancel->is_set();
  }

  // Tries until an address answers. Logs those that do not.
  Result<Fd> connect() {
    const std::vector<net::SocketAddress> addresses = invited();
    for (;;) {
      const TimePoint until = std::min(options_.deadline, reminder_.next());
      auto connected = net::connect(addresses, until, options_.cancel);
      if (connected.ok() || is_cancelled()) return connected;
      if (connected.status().code() != ErrorCode::Timeout)
        return connected.status().with("the coordinator does not answer");
      remind();
      if (steady_clock().now() >= options_.deadline) return unreachable(connected.status());
    }
  }

  void remind() {
    if (!reminder_.is_due()) return;
    const Status last = refusal();
    if (last.ok()) {
      options_.log.warn(
          "cannot reach the coordinator (rank 0's process, or whichever made the unique id) at %s "
          "for %lld s: check that it runs, else %s",
          net::list_of(invited()).c_str(), static_cast<long long>(reminder_.seconds()),
          net::kReachRemedy);
    } else {
      options_.log.warn("no coordinator has accepted this rank for %lld s: %s",
                        static_cast<long long>(reminder_.seconds()), last.message().c_str());
    }
  }

  void note_refusal(const net::SocketAddress& peer, const Status& why) {
    const auto at = std::find_if(candidates_.begin(), candidates_.end(),
                                 [&](const Candidate& one) { return same(one.address, peer); });
    if (at != candidates_.end()) {
      if (at->refusal.ok() || why.code() != ErrorCode::Timeout) at->refusal = why;
      std::rotate(candidates_.begin(), at + 1, candidates_.end());  // try another one first
    }
    if (++refusals_ == kRefusals) {
      options_.log.warn("%s; trying again until the deadline", refusal().message().c_str());
    } else {
      remind();
    }
  }

  // Returns the last refusal of each address; ok: none has refused.
  [[nodiscard]] Status refusal() const {
    std::vector<std::string> said;
    bool are_silent = true;
    for (const Candidate& candidate : candidates_) {
      if (candidate.refusal.ok()) continue;
      are_silent = are_silent && candidate.refusal.code() == ErrorCode::Timeout;
      if (candidate.refusal.code() == ErrorCode::InvalidUsage)
        return candidate.refusal.with(candidate.address.text());
      said.push_back(candidate.address.text() + ": " + candidate.refusal.message());
    }
    if (said.empty()) return {};
    if (are_silent) {
      return error(ErrorCode::Timeout,
                   "the coordinator does not answer (%s): check that the process that made the id "
                   "runs, and that every rank has the id made in this run",
                   joined(said).c_str());
    }
    return error(
        ErrorCode::RemoteError,
        "the process that listens there is not this id's coordinator (%s): give every rank "
        "the unique id made in this run, unchanged, while the process that made it lives",
        joined(said).c_str());
  }

  [[nodiscard]] Status refused() const {
    Status last = refusal();
    return last.ok() ? error(ErrorCode::Timeout, "the coordinator does not answer") : last;
  }

  [[nodiscard]] Status unreachable(const Status& why) const {
    Status last = refusal();
    if (!last.ok()) return last;
    return error(ErrorCode::Timeout,
                 "the coordinator does not answer: %s: check that it runs, else %s",
                 why.message().c_str(), net::kReachRemedy);
  }

  [[nodiscard]] std::vector<net::SocketAddress> invited() const {
    std::vector<net::SocketAddress> addresses;
    for (const Candidate& candidate : candidates_) addresses.push_back(candidate.address);
    return addresses;
  }

  void pause() {
    const Duration left = options_.deadline - steady_clock().now();
    const auto wait = std::chrono::ceil<milliseconds>(std::min<Duration>(pause_, left)).count();
    pollfd cancelled{options_.cancel != nullptr ? options_.cancel->fd() : -1, POLLIN, 0};
    ::poll(&cancelled, 1, static_cast<int>(std::max<int64_t>(wait, 0)));
    pause_ = std::min(pause_ * 2, kLongestPause);
  }

  const DialOptions& options_;
  const net::Hello hello_;
  std::vector<Candidate> candidates_;
  net::Reminder reminder_;
  int refusals_ = 0;
  milliseconds pause_ = kFirstPause;
};

}  // namespace

Result<net::Wire> dial(const Invitation& invitation, const DialOptions& options) {
  return Dialer(invitation, options).dial();
}

}  // namespace hetccl::bootstrap
