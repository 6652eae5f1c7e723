#include "transport/tcp/connector.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <optional>
#include <thread>

namespace hetccl::transport::tcp {

namespace {

using std::chrono::milliseconds;

constexpr uint32_t kPurpose = 2;  // net::Hello::purpose of this transport
// Strangers are bounded in number and in time. A rank of the job that is dropped here dials again.
constexpr size_t kMaxVisitors = 256;
constexpr milliseconds kVisitorPatience{10'000};
// A listener that lives has answered by then, or dropped us.
constexpr milliseconds kDialPatience{12'000};
constexpr size_t kMaxAdmitted = 1024;
constexpr milliseconds kRedialPause{20};

bool is_gone(const pollfd& entry) {
  return (entry.revents & (POLLHUP | POLLERR | POLLRDHUP)) != 0;
}

int poll_timeout(TimePoint deadline) {
  const auto left = std::chrono::ceil<milliseconds>(deadline - steady_clock().now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, 1000));
}

bool has_left(int fd) {
  pollfd entry{fd, POLLRDHUP, 0};
  return ::poll(&entry, 1, 0) > 0 && is_gone(entry);
}

}  // namespace

// One stream that is being dialled.
struct Connector::Dial {
  [[nodiscard]] bool done() const { return wire.valid(); }
  Fd fd;
  std::optional<net::DialHandshake> handshake;
  TimePoint since;
  net::Wire wire;
};

// One thread inside connect().
struct Connector::Wait {
  Wait(Connector& owner, const PeerId& peer_id, const net::Secret& secret)
      : connector(owner), id(peer_id), key{secret}, bell(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    std::lock_guard lock(connector.mutex_);
    connector.waits_.push_back(this);
    // Whoever has been waiting for this secret can go on: the host must look again.
    if (connector.host_ != nullptr) connector.host_->ring();
  }
  ~Wait() {
    connector.resign(*this);
    std::lock_guard lock(connector.mutex_);
    connector.waits_.remove(this);
  }
  Wait(const Wait&) = delete;
  Wait& operator=(const Wait&) = delete;
  void ring() const {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(bell.get(), &one, sizeof one);
  }
  void silence() const {
    uint64_t rings = 0;
    [[maybe_unused]] const ssize_t got = ::read(bell.get(), &rings, sizeof rings);
  }

  Connector& connector;
  const PeerId& id;
  const net::Key key;
  const Fd bell;
};

Result<std::vector<net::Wire>> Connector::connect(const PeerId& id, const Endpoint& peer,
                                                  const net::Secret& secret, const Limit& limit) {
  Wait wait(*this, id, secret);
  if (!wait.bell.valid()) return system_error("eventfd for connecting", errno);
  return id.self < id.peer ? dial(wait, peer, limit) : await(wait, limit);
}

Result<std::vector<net::Wire>> Connector::dial(Wait& wait, const Endpoint& peer,
                                               const Limit& limit) {
  std::vector<Dial> dials(peer.streams);
  const auto all_done = [&dials] {
    return std::all_of(dials.begin(), dials.end(), [](const Dial& one) { return one.done(); });
  };
  while (!all_done()) {
    for (uint32_t i = 0; i < peer.streams; ++i) {
      if (dials[i].fd.valid() || dials[i].done()) continue;
      const net::Hello hello{kPurpose, i, wait.id.communicator, wait.id.self, wait.id.peer};
      HETCCL_ASSIGN(dials[i].fd, net::connect(peer.addresses, limit.deadline, limit.cancel));
      dials[i].handshake.emplace(hello, wait.key, encryption_);
      dials[i].since = steady_clock().now();
    }
    Status refusal;
    for (Dial& one : dials)
      if (!one.done()) HETCCL_TRY(advance(one, &refusal));
    if (limit.cancelled()) return limit.cancel->reason();
    if (steady_clock().now() >= limit.deadline)
      return error(Code::Timeout, "%s",
                   refusal.ok() ? "it has not answered" : refusal.message().c_str());
    if (!refusal.ok()) {
      // The peer may have been flooded, or is not the peer yet: again, but not as fast as we can.
      resign(wait);
      std::this_thread::sleep_for(kRedialPause);
    } else if (!all_done()) {
      sleep(wait, dials, limit);
    }
  }
  std::vector<net::Wire> wires;
  for (Dial& one : dials) wires.push_back(std::move(one.wire));
  return wires;
}

// A connection that was closed is dialled again; one that proved another secret, or is set
// differently, is an error.
Status Connector::advance(Dial& one, Status* refusal) {
  const auto state = one.handshake->advance(one.fd.get());
  if (state == net::HandshakeState::Done) one.wire = one.handshake->wire(std::move(one.fd));
  const bool late = steady_clock().now() - one.since >= kDialPatience;
  if (one.done() || (state == net::HandshakeState::InProgress && !late)) return {};
  const Status& why = one.handshake->failure();
  if (one.handshake->rejected() || why.code() == Code::InvalidUsage) return why;
  *refusal = late ? error(Code::Timeout, "it has not answered") : why;
  one.fd.reset();
  return {};
}

void Connector::resign(Wait& wait) {
  std::lock_guard lock(mutex_);
  if (host_ != &wait) return;
  host_ = nullptr;
  for (const Wait* other : waits_)
    if (other != &wait) return other->ring();
}

Result<std::vector<net::Wire>> Connector::await(Wait& wait, const Limit& limit) {
  for (;;) {
    {
      std::lock_guard lock(mutex_);
      if (ready(wait.id)) return std::move(admitted_.extract(key_of(wait.id)).mapped());
    }
    if (limit.cancelled()) return limit.cancel->reason();
    if (steady_clock().now() >= limit.deadline) return error(Code::Timeout, "it has not dialled");
    sleep(wait, {}, limit);
  }
}

void Connector::sleep(Wait& wait, const std::vector<Dial>& dials, const Limit& limit) {
  std::vector<pollfd> entries;
  entries.push_back({wait.bell.get(), POLLIN, 0});
  if (limit.cancel != nullptr) entries.push_back({limit.cancel->fd(), POLLIN, 0});
  for (const Dial& one : dials)
    if (one.fd.valid()) entries.push_back({one.fd.get(), one.handshake->events(), 0});
  bool host = false;
  {
    std::lock_guard lock(mutex_);
    if (host_ == nullptr) host_ = &wait;
    host = host_ == &wait;
    if (host) {
      // Before the first sleep too: visitors may wait for the secret that this connect() brought.
      serve_listener();
      entries.push_back({listener_.fd.get(), POLLIN, 0});
      for (const Visitor& visitor : visitors_) entries.push_back(entry_of(visitor));
    }
    // Served just now, perhaps for this very connect().
    if (ready(wait.id)) return;
  }
  ::poll(entries.data(), entries.size(), poll_timeout(limit.deadline));
  wait.silence();
  if (host) {
    std::lock_guard lock(mutex_);
    serve_listener();
  }
}

void Connector::serve_listener() {
  accept_visitors();
  // One look at all: a system call for each visitor at each turn would be what a flood lives on.
  std::vector<pollfd> entries;
  for (const Visitor& visitor : visitors_) entries.push_back(entry_of(visitor));
  ::poll(entries.data(), entries.size(), 0);
  const TimePoint now = steady_clock().now();
  auto entry = entries.cbegin();
  for (auto it = visitors_.begin(); it != visitors_.end(); ++entry) {
    bool stays = (entry->revents == 0 && !it->handshake.parked()) || advance(*it);
    stays = stays && !is_gone(*entry);
    if (stays && now - it->since >= kVisitorPatience) {
      refuse(*it, "it did not authenticate in time");
      stays = false;
    }
    it = stays ? std::next(it) : visitors_.erase(it);
  }
}

void Connector::accept_visitors() {
  for (size_t i = 0; i < kMaxVisitors; ++i) {
    auto accepted = net::accept(listener_);
    if (!accepted.ok()) {
      if (!std::exchange(complained_, true))
        log_.warn("transport tcp: %s", accepted.status().message().c_str());
      std::this_thread::sleep_for(kRedialPause);
      return;
    }
    if (!accepted->valid()) return;
    if (visitors_.size() >= kMaxVisitors) make_room();
    visitors_.push_back({std::move(accepted).value(), net::ListenHandshake(encryption_, true),
                         steady_clock().now()});
  }
}

// Ranks say at once who they are: in a flood the oldest who has not is a stranger. A rank that is
// dropped dials again.
void Connector::make_room() {
  const auto is_silent = [](const Visitor& visitor) { return !visitor.handshake.greeted(); };
  const auto is_unproven = [](const Visitor& visitor) { return !visitor.handshake.proven(); };
  auto oldest = std::find_if(visitors_.begin(), visitors_.end(), is_silent);
  if (oldest == visitors_.end())
    oldest = std::find_if(visitors_.begin(), visitors_.end(), is_unproven);
  if (oldest == visitors_.end()) return;
  refuse(*oldest, "it had not proven itself when many others came");
  visitors_.erase(oldest);
}

void Connector::refuse(const Visitor& visitor, const std::string& why) {
  refusals_.add(net::peer_address(visitor.fd.get()).text(), why);
}

// False when the visitor is to be dropped: it failed, left, or has become a stream.
bool Connector::advance(Visitor& visitor) {
  const auto state = visitor.handshake.advance(
      visitor.fd.get(), [this](const net::Hello& hello) { return key_of(hello); });
  if (state == net::HandshakeState::Failed) refuse(visitor, visitor.handshake.failure().message());
  if (state == net::HandshakeState::Done) admit(visitor);
  return state == net::HandshakeState::InProgress;
}

pollfd Connector::entry_of(const Visitor& visitor) {
  return {visitor.fd.get(), static_cast<short>(visitor.handshake.events() | POLLRDHUP), 0};
}

Connector::Key Connector::key_of(const PeerId& id) {
  return {id.communicator, id.self, id.peer};
}

bool Connector::ready(const PeerId& id) const {
  const auto found = admitted_.find(key_of(id));
  return found != admitted_.end() &&
         std::all_of(found->second.begin(), found->second.end(),
                     [](const net::Wire& wire) { return wire.valid(); });
}

void Connector::admit(Visitor& visitor) {
  const net::Hello& hello = visitor.handshake.hello();
  if (hello.index >= streams_) return;
  const Key key{hello.communicator, hello.to, hello.rank};
  if (admitted_.size() >= kMaxAdmitted)
    std::erase_if(admitted_, [](const auto& entry) {
      return std::any_of(entry.second.begin(), entry.second.end(),
                         [](const net::Wire& wire) { return has_left(wire.fd()); });
    });
  if (admitted_.size() >= kMaxAdmitted && !admitted_.contains(key)) {
    log_.warn("transport tcp: more than %zu ranks have dialled and were never connected to",
              kMaxAdmitted);
    return;
  }
  auto& wires = admitted_[key];
  wires.resize(streams_);
  wires[hello.index] = visitor.handshake.wire(std::move(visitor.fd));
  for (const Wait* wait : waits_)
    if (key_of(wait->id) == key) wait->ring();
}

void Connector::forget(uint64_t communicator, int self) {
  std::lock_guard lock(mutex_);
  std::erase_if(admitted_, [&](const auto& entry) {
    return std::get<0>(entry.first) == communicator && std::get<1>(entry.first) == self;
  });
}

// Known while any thread connects within that communicator: its ranks may come in any order.
const net::Key* Connector::key_of(const net::Hello& hello) const {
  if (hello.purpose != kPurpose) return nullptr;
  const net::Key* known = nullptr;
  for (const Wait* wait : waits_) {
    if (wait->id.communicator != hello.communicator) continue;
    known = &wait->key;
    if (wait->id.self == hello.to && wait->id.peer == hello.rank) break;
  }
  return known;
}

}  // namespace hetccl::transport::tcp
