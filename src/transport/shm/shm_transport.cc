#include "transport/shm/shm_transport.h"

#include <signal.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <list>
#include <map>
#include <new>
#include <optional>
#include <thread>
#include <tuple>

#include "transport/shm/mailbox.h"
#include "transport/shm/shm_channel.h"

namespace hetccl::transport {

namespace {

using shm::Channels;
using shm::Mailbox;
using shm::Offer;
using shm::Segment;
using shm::ShmChannel;

// What one call of progress() may move: one thread drives many ranks.
constexpr size_t kProgressBudget = 1 << 20;

// How the mailbox's address travels.
constexpr uint8_t kMagic = 'S';
constexpr size_t kAddressBytes = 1 + sizeof(int32_t) * 2 + sizeof(uint64_t) + 16;

Address encode(const SharedMemoryAddress& address) {
  Address bytes(kAddressBytes);
  bytes[0] = kMagic;
  std::memcpy(&bytes[1], &address.pid, 4);
  std::memcpy(&bytes[5], &address.fd, 4);
  std::memcpy(&bytes[9], &address.bytes, 8);
  std::memcpy(&bytes[17], address.token, 16);
  return bytes;
}

Result<SharedMemoryAddress> decode(const Address& bytes) {
  if (bytes.size() != kAddressBytes || bytes[0] != kMagic)
    return error(Code::InvalidArgument, "%zu bytes that are not an address of transport shm",
                 bytes.size());
  SharedMemoryAddress address;
  std::memcpy(&address.pid, &bytes[1], 4);
  std::memcpy(&address.fd, &bytes[5], 4);
  std::memcpy(&address.bytes, &bytes[9], 8);
  std::memcpy(address.token, &bytes[17], 16);
  return address;
}

bool is_dead(int32_t pid) {
  return ::kill(pid, 0) != 0 && errno == ESRCH;
}

// The lower rank makes the segment and offers it in the higher one's mailbox. Whoever is inside
// connect() empties the mailbox for everybody, so ranks that connect crosswise never wait for each
// other in a circle.
class ShmTransport final : public Transport, public ShmSource {
 public:
  ShmTransport(Waker* waker, const Log& log)
      : waker_(waker), log_(log), channels_(std::make_shared<Channels>()) {}

  [[nodiscard]] std::string name() const override { return "shm"; }
  Result<Address> listen() override;
  Result<std::unique_ptr<Channel>> connect(const PeerId& id, const Address& address,
                                           const std::vector<uint8_t>& secret,
                                           const WaitLimit& limit) override;
  void forget(uint64_t communicator, int self) override;
  bool progress() override;
  [[nodiscard]] int poll_fd() const override { return -1; }
  [[nodiscard]] ShmSource* shm_source() override { return this; }
  [[nodiscard]] uint64_t bytes_sent() const override {
    return channels_->bytes_sent.load(std::memory_order_relaxed);
  }
  void arm() override { set_sleeping(true); }
  void disarm() override { set_sleeping(false); }

 private:
  using Key = std::tuple<uint64_t, int, int>;  // communicator, self, peer
  // One thread inside connect().
  struct Wait {
    const PeerId& id;
    const net::Secret& secret;
    const WaitLimit& limit;
  };

  Result<SharedMemory> make_segment(size_t window) const;
  Result<std::unique_ptr<Channel>> offer(const Wait& wait, const SharedMemoryAddress& peer,
                                         TimePoint deadline);
  Result<std::unique_ptr<Channel>> await(const Wait& wait, TimePoint deadline);
  Result<std::unique_ptr<Channel>> open(const PeerId& id, int side, SharedMemory memory);
  void empty_mailbox();
  bool accept(const Offer& offer);
  Status attach(const Offer& offer, const Wait& wait);
  void set_sleeping(bool sleeping);

  Waker* const waker_;
  const Log log_;
  const std::shared_ptr<Channels> channels_;
  std::mutex mutex_;  // of what follows
  std::optional<Mailbox> mailbox_;
  std::list<Wait> waits_;
  std::map<Key, SharedMemory> accepted_;  // segments that their connect() has yet to take
};

// Looks often at first, since the peer is usually about to come; then lets others run.
class Patience {
 public:
  void rest() {
    std::this_thread::sleep_for(pause_);
    pause_ = std::min(pause_ * 2, std::chrono::microseconds(1000));
  }

 private:
  std::chrono::microseconds pause_{20};
};

Result<Address> ShmTransport::listen() {
  std::lock_guard lock(mutex_);
  if (!mailbox_) {
    HETCCL_ASSIGN(mailbox_, Mailbox::create());
  }
  return encode(mailbox_->address());
}

Result<std::unique_ptr<Channel>> ShmTransport::connect(const PeerId& id, const Address& address,
                                                       const std::vector<uint8_t>& secret,
                                                       const WaitLimit& limit) {
  const std::string what = format("connecting to rank %d over shm", id.peer);
  const TimePoint deadline = steady_clock().now() + std::chrono::milliseconds(limit.timeout_ms);
  std::list<Wait>::iterator wait;
  {
    std::lock_guard lock(mutex_);
    if (!mailbox_ || id.self == id.peer || secret.empty() || id.window > shm::kMaxWindow)
      return error(Code::InvalidArgument,
                   "%s: needs listen() before, another rank, a secret, and a window of at most %zu "
                   "bytes",
                   what.c_str(), shm::kMaxWindow);
    wait = waits_.insert(waits_.end(), {id, secret, limit});
  }
  const auto peer = decode(address);
  auto channel = !peer.ok()          ? peer.status()
                 : id.self < id.peer ? offer(*wait, peer.value(), deadline)
                                     : await(*wait, deadline);
  {
    std::lock_guard lock(mutex_);
    waits_.erase(wait);
  }
  if (!channel.ok())
    return channel.status().with(
        what + format(", within %lld ms", static_cast<long long>(limit.timeout_ms)));
  return channel;
}

Result<SharedMemory> ShmTransport::make_segment(size_t window) const {
  HETCCL_ASSIGN(SharedMemory memory, SharedMemory::create(shm::bytes_with(window)));
  auto* segment = new (memory.data()) Segment;
  segment->sides[0].waker = waker_ != nullptr ? waker_->address() : WakerAddress{};
  return memory;
}

Result<std::unique_ptr<Channel>> ShmTransport::offer(const Wait& wait,
                                                     const SharedMemoryAddress& peer,
                                                     TimePoint deadline) {
  HETCCL_ASSIGN(Mailbox box, Mailbox::attach(peer));
  HETCCL_ASSIGN(SharedMemory memory, make_segment(wait.id.window));
  auto& segment = *reinterpret_cast<Segment*>(memory.data());
  Offer offer{wait.id.communicator, wait.id.self, wait.id.peer, memory.address(), {}, {}};
  net::random_bytes(offer.nonce, sizeof offer.nonce);
  offer.proof = shm::prove_offer(offer, wait.secret);

  int slot = -1;
  for (Patience patience; segment.accepted.load(std::memory_order_acquire) == 0; patience.rest()) {
    if (slot < 0) slot = box.post(offer);
    const Status cancelled = wait.limit.cancelled();
    if (!cancelled.ok() || steady_clock().now() >= deadline) {
      // Should it be taken at this very moment, then the peer's channel is a closed one.
      segment.sides[0].closed.store(1, std::memory_order_release);
      if (slot >= 0) box.withdraw(slot, offer);
      return cancelled.ok() ? error(Code::Timeout, "it has not answered") : cancelled;
    }
    std::lock_guard lock(mutex_);
    empty_mailbox();
  }
  net::Mac answer;
  std::memcpy(answer.data(), segment.mac, answer.size());
  if (!net::same(answer, shm::prove_acceptance(offer, wait.secret)))
    return error(Code::RemoteError, "the other end does not know this job's secret");
  memory.close_descriptor();
  return open(wait.id, 0, std::move(memory));
}

Result<std::unique_ptr<Channel>> ShmTransport::await(const Wait& wait, TimePoint deadline) {
  for (Patience patience;; patience.rest()) {
    {
      std::lock_guard lock(mutex_);
      empty_mailbox();
      const auto found = accepted_.find({wait.id.communicator, wait.id.self, wait.id.peer});
      if (found != accepted_.end())
        return open(wait.id, 1, std::move(accepted_.extract(found).mapped()));
    }
    HETCCL_TRY(wait.limit.cancelled());
    if (steady_clock().now() >= deadline)
      return error(Code::Timeout, "it has not come (or does not know this job's secret)");
  }
}

Result<std::unique_ptr<Channel>> ShmTransport::open(const PeerId& id, int side,
                                                    SharedMemory memory) {
  const auto& segment = *reinterpret_cast<const Segment*>(memory.data());
  if (memory.bytes() != shm::bytes_with(id.window))
    return error(Code::RemoteError, "the other end runs another version of hetccl");
  RemoteWaker waker;
  const WakerAddress address = segment.sides[1 - side].waker;
  if (address.fd >= 0) {
    HETCCL_ASSIGN(waker, RemoteWaker::open(address));
  }
  return std::unique_ptr<Channel>(
      std::make_unique<ShmChannel>(id.peer, side, std::move(memory), std::move(waker), channels_));
}

void ShmTransport::empty_mailbox() {
  mailbox_->take([this](const Offer& offer) { return accept(offer); });
}

// True when the offer is dealt with. One for a communicator that nobody connects in yet stays.
bool ShmTransport::accept(const Offer& offer) {
  const Wait* wait = nullptr;
  for (const Wait& one : waits_) {
    if (one.id.communicator != offer.communicator) continue;
    wait = &one;
    if (one.id.self == offer.to && one.id.peer == offer.from) break;
  }
  if (wait == nullptr) return is_dead(offer.segment.pid);
  const Status status = attach(offer, *wait);
  if (!status.ok())
    log_.warn("transport shm: refused the channel of rank %d: %s", offer.from,
              status.message().c_str());
  return true;
}

Status ShmTransport::attach(const Offer& offer, const Wait& wait) {
  if (!net::same(offer.proof, shm::prove_offer(offer, wait.secret)))
    return error(Code::RemoteError, "it does not know this job's secret");
  // How long the window is to be, who takes the segment knows (open()).
  const bool plausible = offer.segment.bytes == sizeof(Segment) ||
                         (offer.segment.bytes > shm::kWindowBegin &&
                          offer.segment.bytes <= shm::bytes_with(shm::kMaxWindow));
  if (!plausible) return error(Code::RemoteError, "it runs another version of hetccl");
  HETCCL_ASSIGN(SharedMemory memory, SharedMemory::attach(offer.segment));
  auto& segment = *reinterpret_cast<Segment*>(memory.data());
  segment.sides[1].waker = waker_ != nullptr ? waker_->address() : WakerAddress{};
  const net::Mac answer = shm::prove_acceptance(offer, wait.secret);
  std::memcpy(segment.mac, answer.data(), answer.size());
  segment.accepted.store(1, std::memory_order_release);
  accepted_.insert_or_assign({offer.communicator, offer.to, offer.from}, std::move(memory));
  return {};
}

void ShmTransport::forget(uint64_t communicator, int self) {
  std::lock_guard lock(mutex_);
  std::erase_if(accepted_, [&](const auto& entry) {
    if (std::get<0>(entry.first) != communicator || std::get<1>(entry.first) != self) return false;
    reinterpret_cast<Segment*>(entry.second.data())->sides[1].closed.store(1);
    return true;
  });
}

bool ShmTransport::progress() {
  std::lock_guard lock(channels_->mutex);
  size_t budget = kProgressBudget;
  bool moved = false;
  for (ShmChannel* channel : channels_->all) moved |= channel->progress(&budget);
  // Another goes first next time, so that a busy one cannot spend the budget of all for ever.
  if (budget == 0 && channels_->all.size() > 1)
    std::rotate(channels_->all.begin(), channels_->all.begin() + 1, channels_->all.end());
  return moved;
}

void ShmTransport::set_sleeping(bool sleeping) {
  std::lock_guard lock(channels_->mutex);
  for (ShmChannel* channel : channels_->all) channel->set_sleeping(sleeping);
}

}  // namespace

Result<std::unique_ptr<Transport>> make_shm_transport(Waker* waker, const Log& log) {
  return std::unique_ptr<Transport>(std::make_unique<ShmTransport>(waker, log));
}

int score_shm(const ChannelEnd& local, const ChannelEnd& peer) {
  return local.host == peer.host && local.shares_memory && peer.shares_memory ? kShmScore : 0;
}

}  // namespace hetccl::transport
