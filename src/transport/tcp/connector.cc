#include "transport/tcp/connector.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <utility>

#include "base/exception.h"
#include "base/thread.h"
#include "net/reminder.h"
#include "transport/tcp/routes.h"

namespace hetccl::transport::tcp {

namespace {

using std::chrono::milliseconds;

// A live listener has answered or dropped the dialler by then.
constexpr milliseconds kDialPatience{12'000};
// Pauses between dials: a peer that does not connect yet drops every dial, so dial less and less
// often.
constexpr milliseconds kFirstRedial{20}, kLongestRedial{250};
constexpr milliseconds kLongestPause{3'600'000};

}  // namespace

// One stream that is being dialled.
struct Connector::Dial {
  [[nodiscard]] bool done() const { return wire.valid(); }
  /// Returns why it is not connected.
  [[nodiscard]] std::string why() const {
    return refusal.ok() ? "it has not answered" : refusal.message();
  }
  std::vector<net::Route> routes;  // best first
  std::optional<net::Connecting> connecting;
  Fd fd;
  std::optional<net::DialHandshake> handshake;
  TimePoint since{};  // start of the handshake
  milliseconds pause = kFirstRedial;
  TimePoint again{};  // earliest next dial
  Status refusal;     // the last one
  net::Wire wire;
};

// One channel that is being made.
struct Connector::Attempt {
  Attempt(Acceptor& acceptor, const Endpoint& own, const PeerId& with, Endpoint at,
          const net::Secret& secret, const WaitLimit& within, Connected then)
      : id(with),
        peer(std::move(at)),
        limit(within),
        deadline(within.deadline()),
        connected(std::move(then)),
        expectation(acceptor, id, secret),
        reminder(*within.clock) {
    if (!dials_itself()) return;
    for (auto& routes : routes_between(own, peer, id.cards, id.peer_cards))
      dials.emplace_back().routes = std::move(routes);
  }
  [[nodiscard]] bool dials_itself() const { return id.self < id.peer; }
  /// Returns a stream that is being dialled, preferably one that was refused; null: none.
  [[nodiscard]] const Dial* waiting() const {
    const Dial* found = nullptr;
    for (const Dial& one : dials) {
      if (!one.done() && (found == nullptr || found->refusal.ok())) found = &one;
    }
    return found;
  }
  [[nodiscard]] std::vector<net::Wire> take_dialled() {
    std::vector<net::Wire> wires;
    for (Dial& one : dials) wires.push_back(std::move(one.wire));
    return wires;
  }
  const PeerId id;
  const Endpoint peer;
  const WaitLimit limit;
  const TimePoint deadline;
  const Connected connected;
  Expectation expectation;
  net::Reminder reminder;
  std::vector<Dial> dials;
};

Result<std::unique_ptr<Connector>> Connector::create(std::unique_ptr<Acceptor> acceptor,
                                                     const Endpoint& own,
                                                     net::Encryption encryption, const Log& log) {
  HETCCL_ASSIGN(auto bell, Waker::create());
  return std::unique_ptr<Connector>(
      new Connector(std::move(acceptor), own, std::move(encryption), log, std::move(bell)));
}

Connector::Connector(std::unique_ptr<Acceptor> acceptor, Endpoint own, net::Encryption encryption,
                     const Log& log, std::unique_ptr<Waker> bell)
    : acceptor_(std::move(acceptor)),
      own_(std::move(own)),
      where_(net::list_of(own_.addresses)),
      encryption_(std::move(encryption)),
      log_(log),
      bell_(std::move(bell)) {}

Connector::~Connector() {
  if (thread_.joinable()) thread_.join();
}

Status Connector::connect(const PeerId& id, const Endpoint& peer, const net::Secret& secret,
                          const WaitLimit& limit, Connected connected) {
  auto attempt =
      std::make_unique<Attempt>(*acceptor_, own_, id, peer, secret, limit, std::move(connected));
  if (!attempt->expectation.valid()) return system_error("eventfd for connecting", errno);
  const std::lock_guard lock(mutex_);
  HETCCL_TRY(start());
  arrived_.push_back(std::move(attempt));
  bell_->ring();
  return {};
}

// The thread waits for this mutex before it looks at anything.
Status Connector::start() {
  if (serving_) return {};
  if (thread_.joinable()) thread_.join();  // it has released the mutex for good
  HETCCL_ASSIGN(thread_, start_thread("hetccl-connect", [this] { serve(); }));
  serving_ = true;
  return {};
}

// Returns whether the thread has anything to do.
bool Connector::take_arrived() {
  const std::lock_guard lock(mutex_);
  attempts_.splice(attempts_.end(), arrived_);
  serving_ = !attempts_.empty();
  return serving_;
}

// If memory runs out, all waiting connects are told.
void Connector::serve() {
  while (take_arrived()) {
    try {
      serve_once();
    } catch (...) {
      report_exception([this](const Status& why) {
        for (const auto& attempt : std::exchange(attempts_, {})) attempt->connected(why);
      });
    }
  }
}

void Connector::serve_once() {
  Duration left = kLongestPause;
  bool some_ended = false;
  for (auto at = attempts_.begin(); at != attempts_.end();) {
    const TimePoint now = (*at)->limit.now();
    TimePoint again = now + left;
    auto wires = advance(**at, now, again);
    left = again - now;
    if (!wires) {
      ++at;
      continue;
    }
    const auto attempt = std::move(*at);
    at = attempts_.erase(at);
    attempt->connected(std::move(*wires));
    some_ended = true;
  }
  if (!some_ended) sleep(left);
}

// Sleeps until an attempt can go on: each waits for a descriptor, or for a time within `longest`.
void Connector::sleep(Duration longest) {
  std::vector<pollfd> sources{{bell_->fd(), POLLIN, 0}};
  const Cancel* last = nullptr;
  for (const auto& attempt : attempts_) {
    add_sources(*attempt, sources);
    const Cancel* cancel = attempt->limit.cancel;
    if (cancel != nullptr && std::exchange(last, cancel) != cancel)  // mostly the same
      sources.push_back({cancel->fd(), POLLIN, 0});
  }
  const auto left = std::chrono::ceil<milliseconds>(longest).count();
  ::poll(sources.data(), sources.size(), static_cast<int>(std::max<int64_t>(left, 0)));
  bell_->drain();
}

void Connector::add_sources(const Attempt& attempt, std::vector<pollfd>& sources) {
  if (!attempt.dials_itself()) sources.push_back({attempt.expectation.fd(), POLLIN, 0});
  for (const Dial& one : attempt.dials) {
    if (one.fd.valid()) sources.push_back({one.fd.get(), one.handshake->events(), 0});
    if (one.connecting) sources.push_back({one.connecting->fd(), POLLOUT, 0});
  }
}

std::optional<Connector::Wires> Connector::advance(Attempt& attempt, TimePoint now,
                                                   TimePoint& again) {
  if (attempt.dials_itself()) {
    for (Dial& one : attempt.dials) HETCCL_TRY(advance_stream(attempt, one, now, again));
    if (attempt.waiting() == nullptr) return attempt.take_dialled();
  } else if (auto wires = attempt.expectation.take()) {
    return std::move(*wires);
  }
  HETCCL_TRY(attempt.limit.cancelled());
  if (!attempt.limit.patient && attempt.reminder.is_due()) remind(attempt);
  if (now >= attempt.deadline) return too_late(attempt);
  again = std::min(again, attempt.deadline);
  if (!attempt.limit.patient) again = std::min(again, attempt.reminder.next());
  return std::nullopt;
}

Status Connector::too_late(const Attempt& attempt) const {
  if (!attempt.dials_itself()) {
    return error(ErrorCode::Timeout, "it has not dialled %s: check that it runs, else %s",
                 where_.c_str(), net::kReachRemedy);
  }
  const Dial& one = *attempt.waiting();
  if (one.connecting)
    return error(ErrorCode::Timeout, "%s: %s", one.connecting->too_late().message().c_str(),
                 net::kReachRemedy);
  return error(ErrorCode::Timeout, "%s: %s", net::list_of(attempt.peer.addresses).c_str(),
               one.why().c_str());
}

void Connector::remind(const Attempt& attempt) const {
  const Log log{log_.level, attempt.id.self};
  const auto seconds = static_cast<long long>(attempt.reminder.seconds());
  if (!attempt.dials_itself()) {
    log.warn("waiting for rank %d to connect to this rank at %s for %lld s: %s", attempt.id.peer,
             where_.c_str(), seconds, net::kReachRemedy);
    return;
  }
  const Dial& one = *attempt.waiting();
  log.warn("%s rank %d at %s for %lld s: %s", one.connecting ? "cannot reach" : "waiting for",
           attempt.id.peer, net::list_of(attempt.peer.addresses).c_str(), seconds,
           one.connecting ? net::kReachRemedy : one.why().c_str());
}

// Remembers a NIC that could not reach the peer: a cable fault, or a network that only looks like
// the peer's. Later connections try it only briefly, because there may be many, one after the
// other.
void Connector::note_detour(const Attempt& attempt, const Dial& one) {
  const net::Route& wanted = one.routes.front();
  if (!wanted.from || one.connecting->route().text() == wanted.text()) return;
  detours_.insert(wanted.card);
  Log{log_.level, attempt.id.self}.warn(
      "no connection to rank %d at %s: it goes to %s instead, and the card carries less. Check its "
      "cable and network, or leave it out (HETCCL_SOCKET_IFNAME)",
      attempt.id.peer, wanted.text().c_str(), one.connecting->route().text().c_str());
}

// Dials the stream if it is due, or continues its handshake.
Status Connector::advance_stream(Attempt& attempt, Dial& one, TimePoint now, TimePoint& again) {
  if (one.done()) return {};
  if (!one.fd.valid()) {
    if (now < one.again) {
      again = std::min(again, one.again);
      return {};
    }
    if (!one.connecting) {
      net::Route& first = one.routes.front();
      first.patient = first.patient && !detours_.contains(first.card);
      one.connecting.emplace(one.routes, now);
    }
    auto connected = one.connecting->advance(now, again);
    if (!connected) return {};
    HETCCL_ASSIGN(one.fd, std::move(*connected));
    note_detour(attempt, one);
    one.connecting.reset();
    const net::Hello hello{acceptor_->purpose(), static_cast<uint32_t>(&one - attempt.dials.data()),
                           attempt.id.communicator, attempt.id.self, attempt.id.peer};
    one.handshake.emplace(hello, attempt.expectation.key(), encryption_);
    one.since = now;
  }
  return advance_handshake(one, now, again);
}

// A connection that was closed or answered wrongly is dialled again: it may have met a stranger, or
// a listener flooded by strangers. Only a peer that has proven itself is believed.
Status Connector::advance_handshake(Dial& one, TimePoint now, TimePoint& again) {
  const auto state = one.handshake->advance(one.fd.get());
  if (state == net::HandshakeState::Done) one.wire = one.handshake->wire(std::move(one.fd));
  const bool late = now - one.since >= kDialPatience;
  if (one.done()) return {};
  if (state == net::HandshakeState::InProgress && !late) {
    again = std::min(again, one.since + kDialPatience);
    return {};
  }
  const Status& why = one.handshake->failure();
  if (one.handshake->proven() && why.code() == ErrorCode::InvalidUsage) return why;
  one.refusal = why.ok() ? error(ErrorCode::Timeout, "it has not answered") : why;
  one.fd.reset();
  one.again = now + one.pause;
  again = std::min(again, one.again);
  one.pause = std::min(one.pause * 2, kLongestRedial);
  return {};
}

}  // namespace hetccl::transport::tcp
