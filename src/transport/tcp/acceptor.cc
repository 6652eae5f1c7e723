#include "transport/tcp/acceptor.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <system_error>

#include "base/descriptors.h"
#include "base/thread.h"

namespace hetccl::transport::tcp {

namespace {

using std::chrono::milliseconds;

// Strangers are bounded in number and in time. A rank of the job that is dropped dials again.
constexpr size_t kMaxVisitors = 256;
constexpr size_t kAcceptsPerTurn = 64;
constexpr milliseconds kVisitorPatience{10'000};
constexpr milliseconds kAcceptPause{100};
constexpr milliseconds kLongestSleep{60'000};
constexpr milliseconds kComplainPause{10'000};
constexpr milliseconds kDropPause{1'000};

bool is_gone(const pollfd& entry) {
  return (entry.revents & (POLLHUP | POLLERR | POLLRDHUP)) != 0;
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
  if (acceptor_.full()) ring(acceptor_.bell_);  // a visitor may wait for room
  return std::move(acceptor_.admitted_.extract(found).mapped());
}

Result<std::unique_ptr<Acceptor>> Acceptor::start(net::Listener listener, uint32_t streams,
                                                  net::Encryption encryption, const Log& log,
                                                  size_t max_admitted, uint32_t purpose) {
  Fd bell(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!bell.valid()) return system_error("eventfd for accepting", errno);
  std::unique_ptr<Acceptor> made(new Acceptor(std::move(listener), std::move(bell), streams,
                                              std::move(encryption), log, max_admitted, purpose));
  HETCCL_ASSIGN(made->thread_, start_thread("hetccl-accept", [raw = made.get()] { raw->serve(); }));
  return made;
}

Acceptor::Acceptor(net::Listener listener, Fd bell, uint32_t streams, net::Encryption encryption,
                   const Log& log, size_t max_admitted, uint32_t purpose)
    : listener_(std::move(listener)),
      bell_(std::move(bell)),
      streams_(streams),
      encryption_(std::move(encryption)),
      log_(log),
      max_admitted_(max_admitted),
      purpose_(purpose),
      unproven_(kMaxVisitors),
      refusals_("transport tcp", log) {}

Acceptor::~Acceptor() {
  stop_.store(true);
  ring(bell_);
  if (thread_.joinable()) thread_.join();
}

// Out of memory: drops visitors that have not proven themselves, which dial again, and pauses.
void Acceptor::serve() {
  while (!stop_.load()) {
    try {
      serve_once();
    } catch (...) {
      visitors_.clear();
      std::this_thread::sleep_for(kAcceptPause);
    }
  }
}

void Acceptor::serve_once() {
  wait();
  drop_abandoned();
  accept_visitors();
  // Poll all visitors together: one system call for each would help a flood.
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

// Waits until a connection comes, a visitor can move or has had its time, or the bell rings.
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
  if (!visitors_.empty() && drops_from_ > now) until = std::min(until, drops_from_);
  const auto left = std::chrono::ceil<milliseconds>(until - now).count();
  ::poll(entries.data(), entries.size(), static_cast<int>(std::max<int64_t>(left, 0)));
  silence(bell_);
}

void Acceptor::accept_visitors() {
  for (size_t i = 0; i < kAcceptsPerTurn; ++i) {
    auto accepted = net::accept(listener_);
    if (!accepted.ok()) {
      if (drop_one("it had not proven itself when descriptors ran out")) continue;
      if (reserve_descriptors(kAcceptsPerTurn).ok()) accepted = net::accept(listener_);
      if (!accepted.ok()) return pause_accepting(accepted.status());
    }
    if (!accepted->valid()) return;
    while (visitors_.size() >= kMaxVisitors &&
           drop_one("it had not proven itself when many others came")) {
    }
    const net::SocketAddress peer = net::peer_address(accepted->get());
    const uint64_t name = next_name_++;
    visitors_.push_back({name, std::move(accepted).value(), net::ListenHandshake(encryption_, true),
                         peer, unproven_.add(name, net::source_of(peer)), steady_clock().now()});
    // The hello usually comes with the connection.
    if (!advance(visitors_.back())) visitors_.pop_back();
  }
}

// Pauses accepting: otherwise the pending connection would keep the thread spinning.
void Acceptor::pause_accepting(const Status& why) {
  const TimePoint now = steady_clock().now();
  accepts_from_ = now + kAcceptPause;
  if (now < complains_from_) return;
  complains_from_ = now + kComplainPause;
  log_.warn("transport tcp cannot accept more connections: %s (raise ulimit -Hn)",
            why.message().c_str());
}

// Frees the places of channels that peers have abandoned, when places are short.
void Acceptor::drop_abandoned() {
  const TimePoint now = steady_clock().now();
  std::lock_guard lock(mutex_);
  if (!full() || now < drops_from_) return;
  drops_from_ = now + kDropPause;
  std::vector<pollfd> entries;
  for (const auto& [key, wires] : admitted_)
    for (const net::Wire& wire : wires) entries.push_back({wire.fd(), POLLRDHUP, 0});
  ::poll(entries.data(), entries.size(), 0);
  auto entry = entries.cbegin();
  std::erase_if(admitted_, [&](const auto& one) {
    const auto first = std::exchange(entry, entry + static_cast<ptrdiff_t>(one.second.size()));
    return std::any_of(first, entry, is_gone);
  });
}

// Drops an unproven visitor; reads from it first, because its proof may have come. Returns false if
// all are proven.
bool Acceptor::drop_one(const char* why) {
  const auto name = unproven_.next_to_drop();
  if (!name) return false;
  const auto visitor = std::find_if(visitors_.begin(), visitors_.end(),
                                    [&](const Visitor& one) { return one.name == *name; });
  const bool stays = advance(*visitor);
  if (stays && visitor->handshake.proven()) return true;
  if (stays) refuse(*visitor, why);
  visitors_.erase(visitor);
  return true;
}

// Notes why a visitor is dropped. A parked one speaks the protocol but its communicator is unknown
// here: usually a peer that is early, and dials again.
void Acceptor::refuse(const Visitor& visitor, const std::string& why) {
  if (!visitor.handshake.parked()) refusals_.add(visitor.peer.text(), why);
}

// Returns false if the visitor is to be removed: it failed, was forgotten, or became a stream.
bool Acceptor::advance(Visitor& visitor) {
  net::HandshakeState state;
  {
    std::lock_guard lock(mutex_);
    state = visitor.handshake.advance(visitor.fd.get(),
                                      [this](const net::Hello& hello) { return key_of(hello); });
    if (visitor.handshake.proven() && visitor.claim == nullptr)
      visitor.claim = claim(visitor.handshake.hello());
    if (state == net::HandshakeState::Done && !visitor.claim->forgotten) admit(visitor);
  }
  if (visitor.handshake.proven()) visitor.seat = {};
  if (state == net::HandshakeState::Failed) refuse(visitor, visitor.handshake.failure().message());
  return state == net::HandshakeState::InProgress;
}

// Requires the mutex.
std::shared_ptr<Acceptor::Claim> Acceptor::claim(const net::Hello& hello) {
  auto made = std::make_shared<Claim>(Claim{{hello.communicator, hello.to, hello.rank}});
  std::erase_if(claims_, [](const auto& one) { return one.expired(); });
  claims_.push_back(made);
  return made;
}

pollfd Acceptor::entry_of(const Visitor& visitor) {
  return {visitor.fd.get(), static_cast<short>(visitor.handshake.events() | POLLRDHUP), 0};
}

// Requires the mutex.
void Acceptor::admit(Visitor& visitor) {
  const net::Hello& hello = visitor.handshake.hello();
  if (hello.index >= streams_) return;
  const Key& key = visitor.claim->key;
  auto& wires = admitted_[key];
  wires.resize(streams_);
  wires[hello.index] = visitor.handshake.wire(std::move(visitor.fd));
  for (const Expectation* one : expectations_)
    if (key_of(one->id_) == key) ring(one->bell_);
  if (full()) ring(bell_);  // other streams of this channel may wait
}

void Acceptor::forget(uint64_t communicator, int self) {
  const auto is_theirs = [&](const Key& key) {
    return std::get<0>(key) == communicator && std::get<1>(key) == self;
  };
  std::lock_guard lock(mutex_);
  std::erase_if(admitted_, [&](const auto& entry) { return is_theirs(entry.first); });
  for (const auto& one : claims_)
    if (const auto claim = one.lock(); claim != nullptr && is_theirs(claim->key))
      claim->forgotten = true;
  ring(bell_);  // a visitor may wait for room
}

// Returns the key of a hello's communicator; null: unknown. It is known while any thread connects
// in the communicator, because ranks come in any order. An accepted peer believes that its channel
// exists; so without room the visitor stays parked and dials again. Requires the mutex.
const net::Key* Acceptor::key_of(const net::Hello& hello) const {
  if (hello.purpose != purpose_) return nullptr;
  const net::Key* known = nullptr;
  for (const Expectation* one : expectations_) {
    if (one->id_.communicator != hello.communicator) continue;
    known = &one->key_;
    if (one->id_.self == hello.to && one->id_.peer == hello.rank) return known;
  }
  const bool room = !full() || admitted_.contains(Key{hello.communicator, hello.to, hello.rank});
  return room ? known : nullptr;
}

}  // namespace hetccl::transport::tcp
