#include "transport/tcp/connector.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <optional>

namespace hetccl::transport::tcp {

namespace {

using std::chrono::milliseconds;

// A listener that lives has answered by then, or dropped us.
constexpr milliseconds kDialPatience{12'000};
// A peer that is not in connect() yet drops us for as long as it takes: asked less and less often.
constexpr milliseconds kFirstRedial{20}, kLongestRedial{250};

// Sleeps until one of `entries` or `cancel` is ready, at most until `deadline`.
void sleep(std::vector<pollfd> entries, const Cancel* cancel, TimePoint deadline) {
  if (cancel != nullptr) entries.push_back({cancel->fd(), POLLIN, 0});
  const auto left = std::chrono::ceil<milliseconds>(deadline - steady_clock().now()).count();
  ::poll(entries.data(), entries.size(), static_cast<int>(std::clamp<int64_t>(left, 0, 1000)));
}

}  // namespace

// One stream that is being dialled.
struct Connector::Dial {
  [[nodiscard]] bool done() const { return wire.valid(); }
  Fd fd;
  std::optional<net::DialHandshake> handshake;
  TimePoint since;
  milliseconds pause = kFirstRedial;
  TimePoint again{};  // not to be dialled before
  Status refusal;     // the last
  net::Wire wire;
};

Result<std::vector<net::Wire>> Connector::connect(const PeerId& id, const Endpoint& peer,
                                                  const net::Secret& secret, const Limit& limit) {
  Expectation expectation(*acceptor_, id, secret);
  if (!expectation.valid()) return system_error("eventfd for connecting", errno);
  Call call{expectation, limit, {log_.level, id.self}, net::Reminder()};
  return id.self < id.peer ? dial(call, peer) : await(call);
}

Result<std::vector<net::Wire>> Connector::dial(Call& call, const Endpoint& peer) {
  const Limit& limit = call.limit;
  std::vector<Dial> dials(peer.streams);
  for (;;) {
    HETCCL_TRY(dial_streams(call, peer, dials));
    const bool done =
        std::all_of(dials.begin(), dials.end(), [](const Dial& one) { return one.done(); });
    if (done) break;
    if (limit.cancelled()) return limit.cancel->reason();
    const auto refused =
        std::find_if(dials.begin(), dials.end(), [](const Dial& one) { return !one.refusal.ok(); });
    const std::string why =
        refused != dials.end() ? refused->refusal.message() : "it has not answered";
    const std::string where = net::list_of(peer.addresses);
    if (steady_clock().now() >= limit.deadline)
      return error(Code::Timeout, "%s: %s", where.c_str(), why.c_str());
    if (!limit.patient && call.reminder.is_due())
      call.log.warn("waiting for rank %d at %s for %lld s: %s", call.expectation.id().peer,
                    where.c_str(), static_cast<long long>(call.reminder.seconds()), why.c_str());
    TimePoint until = limit.deadline;
    std::vector<pollfd> entries;
    for (const Dial& one : dials) {
      if (one.fd.valid()) entries.push_back({one.fd.get(), one.handshake->events(), 0});
      if (!one.fd.valid() && !one.done()) until = std::min(until, one.again);
    }
    sleep(std::move(entries), limit.cancel, until);
  }
  std::vector<net::Wire> wires;
  for (Dial& one : dials) wires.push_back(std::move(one.wire));
  return wires;
}

// Dials the streams that are to be dialled now, and advances the others.
Status Connector::dial_streams(Call& call, const Endpoint& peer, std::vector<Dial>& dials) {
  const PeerId& id = call.expectation.id();
  for (uint32_t i = 0; i < peer.streams; ++i) {
    Dial& one = dials[i];
    if (one.done()) continue;
    if (!one.fd.valid()) {
      if (steady_clock().now() < one.again) continue;
      HETCCL_ASSIGN(one.fd, reach(call, peer));
      const net::Hello hello{kPurpose, i, id.communicator, id.self, id.peer};
      one.handshake.emplace(hello, call.expectation.key(), encryption_);
      one.since = steady_clock().now();
    }
    HETCCL_TRY(advance(one));
  }
  return {};
}

// A connection to the peer's listener, with a word in the log while it cannot be reached.
Result<Fd> Connector::reach(Call& call, const Endpoint& peer) {
  const Limit& limit = call.limit;
  for (;;) {
    const TimePoint until = std::min(limit.deadline, call.reminder.next());
    auto connected = net::connect(peer.addresses, until, limit.cancel);
    if (connected.ok() || limit.cancelled()) return connected;
    if (connected.status().code() != Code::Timeout) return connected;
    if (steady_clock().now() >= limit.deadline)
      return error(Code::Timeout, "%s: %s", connected.status().message().c_str(),
                   net::kReachRemedy);
    if (call.reminder.is_due())
      call.log.warn("cannot reach rank %d at %s for %lld s: %s", call.expectation.id().peer,
                    net::list_of(peer.addresses).c_str(),
                    static_cast<long long>(call.reminder.seconds()), net::kReachRemedy);
  }
}

// A connection that was closed or answered wrongly is dialled again: a stranger may have done so,
// or a listener that strangers flood. Only one that has proven itself is believed.
Status Connector::advance(Dial& one) {
  const auto state = one.handshake->advance(one.fd.get());
  if (state == net::HandshakeState::Done) one.wire = one.handshake->wire(std::move(one.fd));
  const TimePoint now = steady_clock().now();
  const bool late = now - one.since >= kDialPatience;
  if (one.done() || (state == net::HandshakeState::InProgress && !late)) return {};
  const Status& why = one.handshake->failure();
  if (one.handshake->proven() && why.code() == Code::InvalidUsage) return why;
  one.refusal = why.ok() ? error(Code::Timeout, "it has not answered") : why;
  one.fd.reset();
  one.again = now + one.pause;
  one.pause = std::min(one.pause * 2, kLongestRedial);
  return {};
}

Result<std::vector<net::Wire>> Connector::await(Call& call) {
  const Limit& limit = call.limit;
  for (;;) {
    if (auto wires = call.expectation.take()) return std::move(*wires);
    if (limit.cancelled()) return limit.cancel->reason();
    if (steady_clock().now() >= limit.deadline)
      return error(Code::Timeout, "it has not dialled %s: check that it runs, else %s",
                   where_.c_str(), net::kReachRemedy);
    if (!limit.patient && call.reminder.is_due())
      call.log.warn("waiting for rank %d to connect to this rank at %s for %lld s: %s",
                    call.expectation.id().peer, where_.c_str(),
                    static_cast<long long>(call.reminder.seconds()), net::kReachRemedy);
    sleep({{call.expectation.fd(), POLLIN, 0}}, limit.cancel, limit.deadline);
  }
}

}  // namespace hetccl::transport::tcp
