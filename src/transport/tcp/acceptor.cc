#include "transport/tcp/acceptor.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <system_error>

#include "base/thread.h"
#include "net/crowd.h"

namespace hetccl::transport::tcp {

namespace {

using std::chrono::milliseconds;

// Strangers are bounded in number and in time. A rank of the job that is dropped here dials again.
constexpr size_t kMaxVisitors = 256;
constexpr size_t kAcceptsPerTurn = 64;
constexpr milliseconds kVisitorPatience{10'000};
constexpr milliseconds kAcceptPause{100};
constexpr milliseconds kLongestSleep{60'000};
constexpr size_t kMaxAdmitted = 1024;

bool is_gone(const pollfd& entry) {
  return (entry.revents & (POLLHUP | POLLERR | POLLRDHUP)) != 0;
}

bool has_left(int fd) {
  pollfd entry{fd, POLLRDHUP, 0};
  return ::poll(&entry, 1, 0) > 0 && is_gone(entry);
}

void ring(const Fd& bell) {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(bell.get(), &one, sizeof one);
}

void silence(const Fd& bell) {
  uint64_t rings = 0;
  [[maybe_unused]] const ssize_t got = ::read(bell.get(), &rings, sizeof rings);
}

}  // namespace

Acceptor::Expectation::Expectation(Acceptor& acceptor, const PeerId& id, const net::Secret& secret)
    : acceptor_(acceptor), id_(id), key_{secret}, bell_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  {
    std::lock_guard lock(acceptor_.mutex_);
    acceptor_.expectations_.push_back(this);
    if (acceptor_.admitted_.contains(key_of(id_))) ring(bell_);
  }
  ring(acceptor_.bell_);  // a visitor may wait for this secret
}

Acceptor::Expectation::~Expectation() {
  std::lock_guard lock(acceptor_.mutex_);
  acceptor_.expectations_.remove(this);
}

std::optional<std::vector<net::Wire>> Acceptor::Expectation::take() {
  silence(bell_);
  std::lock_guard lock(acceptor_.mutex_);
  const auto found = acceptor_.admitted_.find(key_of(id_));
  if (found == acceptor_.admitted_.end()) return std::nullopt;
  const bool all = std::all_of(found->second.begin(), found->second.end(),
                               [](const net::Wire& wire) { return wire.valid(); });
  if (!all) return std::nullopt;
  return std::move(acceptor_.admitted_.extract(found).mapped());
}

Result<std::unique_ptr<Acceptor>> Acceptor::start(net::Listener listener, uint32_t streams,
                                                  net::Encryption encryption, const Log& log) {
  Fd bell(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!bell.valid()) return system_error("eventfd for accepting", errno);
  std::unique_ptr<Acceptor> made(
      new Acceptor(std::move(listener), std::move(bell), streams, std::move(encryption), log));
  HETCCL_ASSIGN(made->thread_, start_thread("hetccl-accept", [raw = made.get()] { raw->serve(); }));
  return made;
}

Acceptor::Acceptor(net::Listener listener, Fd bell, uint32_t streams, net::Encryption encryption,
                   const Log& log)
    : listener_(std::move(listener)),
      bell_(std::move(bell)),
      streams_(streams),
      encryption_(std::move(encryption)),
      log_(log),
      refusals_("transport tcp", log) {}

Acceptor::~Acceptor() {
  stop_.store(true);
  ring(bell_);
  if (thread_.joinable()) thread_.join();
}

void Acceptor::serve() {
  while (!stop_.load()) {
    wait();
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
}

// Until a connection waits, a visitor moves or has had its time, or somebody rings.
void Acceptor::wait() {
  const TimePoint now = steady_clock().now();
  TimePoint until = now + kLongestSleep;
  std::vector<pollfd> entries = {{bell_.get(), POLLIN, 0}};
  if (accepts_from_ <= now)
    entries.push_back({listener_.fd.get(), POLLIN, 0});
  else
    until = accepts_from_;
  for (const Visitor& visitor : visitors_) entries.push_back(entry_of(visitor));
  if (!visitors_.empty()) until = std::min(until, visitors_.front().since + kVisitorPatience);
  const auto left = std::chrono::ceil<milliseconds>(until - now).count();
  ::poll(entries.data(), entries.size(), static_cast<int>(std::max<int64_t>(left, 0)));
  silence(bell_);
}

void Acceptor::accept_visitors() {
  for (size_t i = 0; i < kAcceptsPerTurn; ++i) {
    auto accepted = net::accept(listener_);
    if (!accepted.ok()) {
      if (drop_one("it had not proven itself when descriptors ran out")) continue;
      if (!std::exchange(complained_, true))
        log_.warn("transport tcp: %s", accepted.status().message().c_str());
      accepts_from_ = steady_clock().now() + kAcceptPause;
      return;
    }
    if (!accepted->valid()) return;
    while (visitors_.size() >= kMaxVisitors &&
           drop_one("it had not proven itself when many others came")) {
    }
    const net::SocketAddress peer = net::peer_address(accepted->get());
    visitors_.push_back({next_name_++, std::move(accepted).value(),
                         net::ListenHandshake(encryption_, true), peer, steady_clock().now()});
    // Its hello has mostly come with it.
    if (!advance(visitors_.back())) visitors_.pop_back();
  }
}

// False where all are proven. Reads before it drops: the proof may have come.
bool Acceptor::drop_one(const char* why) {
  net::Crowd crowd(kMaxVisitors);
  for (const Visitor& visitor : visitors_)
    if (!visitor.handshake.proven()) crowd.add(visitor.name, net::source_of(visitor.peer));
  const auto name = crowd.next_to_drop();
  if (!name) return false;
  const auto visitor = std::find_if(visitors_.begin(), visitors_.end(),
                                    [&](const Visitor& one) { return one.name == *name; });
  const bool stays = advance(*visitor);
  if (stays && visitor->handshake.proven()) return true;
  if (stays) refuse(*visitor, why);
  visitors_.erase(visitor);
  return true;
}

// A parked visitor speaks our protocol, and nobody here connects within its communicator: mostly a
// peer that is early, and dials again.
void Acceptor::refuse(const Visitor& visitor, const std::string& why) {
  if (!visitor.handshake.parked()) refusals_.add(visitor.peer.text(), why);
}

// False when the visitor is to be dropped: it failed, or has become a stream.
bool Acceptor::advance(Visitor& visitor) {
  net::HandshakeState state;
  {
    std::lock_guard lock(mutex_);
    state = visitor.handshake.advance(visitor.fd.get(),
                                      [this](const net::Hello& hello) { return key_of(hello); });
  }
  if (state == net::HandshakeState::Failed) refuse(visitor, visitor.handshake.failure().message());
  if (state == net::HandshakeState::Done) admit(visitor);
  return state == net::HandshakeState::InProgress;
}

pollfd Acceptor::entry_of(const Visitor& visitor) {
  return {visitor.fd.get(), static_cast<short>(visitor.handshake.events() | POLLRDHUP), 0};
}

void Acceptor::admit(Visitor& visitor) {
  const net::Hello& hello = visitor.handshake.hello();
  if (hello.index >= streams_) return;
  const Key key{hello.communicator, hello.to, hello.rank};
  std::lock_guard lock(mutex_);
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
  for (const Expectation* one : expectations_)
    if (key_of(one->id_) == key) ring(one->bell_);
}

void Acceptor::forget(uint64_t communicator, int self) {
  std::lock_guard lock(mutex_);
  std::erase_if(admitted_, [&](const auto& entry) {
    return std::get<0>(entry.first) == communicator && std::get<1>(entry.first) == self;
  });
}

// Known while any thread connects within that communicator: its ranks may come in any order. With
// the mutex held.
const net::Key* Acceptor::key_of(const net::Hello& hello) const {
  if (hello.purpose != kPurpose) return nullptr;
  const net::Key* known = nullptr;
  for (const Expectation* one : expectations_) {
    if (one->id_.communicator != hello.communicator) continue;
    known = &one->key_;
    if (one->id_.self == hello.to && one->id_.peer == hello.rank) break;
  }
  return known;
}

}  // namespace hetccl::transport::tcp
