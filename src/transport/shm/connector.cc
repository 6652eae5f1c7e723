#include "transport/shm/connector.h"

#include <poll.h>
#include <signal.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <new>
#include <utility>
#include <vector>

#include "base/exception.h"
#include "base/thread.h"
#include "transport/shm/segment.h"

namespace hetccl::transport::shm {
namespace {

using std::chrono::milliseconds;

// Retry interval: a full mailbox does not ring when it has room again.
constexpr milliseconds kFullMailbox{10};
constexpr milliseconds kLongestSleep{3'600'000};

bool is_dead(int32_t pid) {
  return ::kill(pid, 0) != 0 && errno == ESRCH;
}

Segment& segment_of(const SharedMemory& memory) {
  return *reinterpret_cast<Segment*>(memory.data());
}

}  // namespace

// The lower rank's side of a connection.
struct Connector::Proposal {
  Mailbox box;  // the higher rank's
  RemoteWaker bell;
  SharedMemory memory;
  Offer offer;
  int slot = -1;  // in `box`; -1: none was free
};

// A connection that is being made.
struct Connector::Wait {
  const PeerId id;
  const SharedMemoryAddress peer;
  const net::Secret secret;
  const WaitLimit limit;
  const TimePoint deadline;
  const Connected connected;
  bool prepared = false;
  std::unique_ptr<Proposal> proposal{};  // at the lower rank, once prepared
  std::optional<Result<SharedMemory>> outcome{};
};

Connector::Connector(Waker* waker, const Log& log) : waker_(waker), log_(log) {}

Connector::~Connector() {
  if (thread_.joinable()) thread_.join();
}

Result<SharedMemoryAddress> Connector::listen() {
  const std::lock_guard lock(mutex_);
  if (!mailbox_) {
    HETCCL_ASSIGN(bell_, Waker::create());
    HETCCL_ASSIGN(mailbox_, Mailbox::create(bell_->address()));
  }
  return mailbox_->address();
}

Status Connector::connect(const PeerId& id, const SharedMemoryAddress& peer,
                          const net::Secret& secret, const WaitLimit& limit, Connected connected) {
  const TimePoint deadline = limit.deadline();
  const std::lock_guard lock(mutex_);
  HETCCL_TRY(start());
  waits_.push_back(
      std::unique_ptr<Wait>(new Wait{id, peer, secret, limit, deadline, std::move(connected)}));
  bell_->ring();
  return {};
}

Result<std::unique_ptr<Connector::Proposal>> Connector::propose(const Wait& wait) const {
  HETCCL_ASSIGN(Mailbox box, Mailbox::attach(wait.peer));
  HETCCL_ASSIGN(RemoteWaker bell, RemoteWaker::open(box.bell()));
  HETCCL_ASSIGN(SharedMemory memory, SharedMemory::create(bytes_with(wait.id.window)));
  auto* segment = new (memory.data()) Segment;
  segment->sides[0].waker = waker_ != nullptr ? waker_->address() : WakerAddress{};
  Offer offer;
  offer.communicator = wait.id.communicator;
  offer.from = wait.id.self;
  offer.to = wait.id.peer;
  offer.segment = memory.address();
  offer.bell = bell_->address();
  net::random_bytes(offer.nonce, sizeof offer.nonce);
  offer.proof = prove_offer(offer, wait.secret);
  return std::make_unique<Proposal>(
      Proposal{std::move(box), std::move(bell), std::move(memory), offer});
}

// The thread waits for this mutex before it looks at anything.
Status Connector::start() {
  if (serving_) return {};
  if (thread_.joinable()) thread_.join();  // it has released the mutex for good
  HETCCL_ASSIGN(thread_, start_thread("hetccl-shm", [this] {
                  Lock lock(mutex_);
                  serve(lock);
                }));
  serving_ = true;
  return {};
}

// If memory runs out, all waiting connects are told.
void Connector::serve(Lock& lock) {
  while (!waits_.empty()) {
    Waits ended;
    try {
      prepare(lock);
      ended = look();
      if (ended.empty()) sleep(lock);
    } catch (...) {
      if (!lock.owns_lock()) lock.lock();
      report_exception([&](const Status& why) {
        for (const auto& wait : waits_) wait->outcome = why;
        ended = std::exchange(waits_, {});
      });
    }
    lock.unlock();
    for (const auto& wait : ended) wait->connected(std::move(*wait->outcome));
    ended.clear();
    lock.lock();
  }
  serving_ = false;
}

// Making a segment takes a millisecond, so the lock is released for other connects.
void Connector::prepare(Lock& lock) {
  for (const auto& wait : waits_) {
    if (std::exchange(wait->prepared, true) || wait->id.self > wait->id.peer) continue;
    lock.unlock();
    auto proposal = propose(*wait);
    lock.lock();
    if (proposal.ok())
      wait->proposal = std::move(proposal).value();
    else
      wait->outcome = proposal.status();
  }
}

Connector::Waits Connector::look() {
  mailbox_->take([this](const Offer& offer) { return accept(offer); });
  Waits ended;
  for (auto at = waits_.begin(); at != waits_.end();) {
    const auto next = std::next(at);
    Wait& wait = **at;
    if (!wait.outcome) wait.outcome = outcome_of(wait);
    if (wait.outcome) ended.splice(ended.end(), waits_, at);
    at = next;
  }
  return ended;
}

// Every event that this waits for rings the bell, or sets a Cancel.
void Connector::sleep(Lock& lock) {
  std::vector<pollfd> sources{{bell_->fd(), POLLIN, 0}};
  Duration left = kLongestSleep;
  for (const auto& wait : waits_) {
    left = std::min(left, wait->deadline - wait->limit.now());
    if (wait->proposal != nullptr && wait->proposal->slot < 0)
      left = std::min<Duration>(left, kFullMailbox);
    if (wait->limit.cancel == nullptr) continue;
    const int fd = wait->limit.cancel->fd();
    const bool known = std::any_of(sources.begin(), sources.end(),
                                   [fd](const pollfd& source) { return source.fd == fd; });
    if (!known) sources.push_back({fd, POLLIN, 0});
  }
  lock.unlock();
  const auto ms = std::chrono::ceil<milliseconds>(left).count();
  ::poll(sources.data(), sources.size(), static_cast<int>(std::max(ms, int64_t{0})));
  bell_->drain();
  lock.lock();
}

std::optional<Result<SharedMemory>> Connector::outcome_of(Wait& wait) {
  const Status cancelled = wait.limit.cancelled();
  const bool over = !cancelled.ok() || wait.limit.now() >= wait.deadline;
  if (wait.proposal == nullptr) {
    auto found = accepted_.extract({wait.id.communicator, wait.id.self, wait.id.peer});
    if (!found.empty()) return std::move(found.mapped());
    if (!over) return {};
    if (!cancelled.ok()) return cancelled;
    return error(ErrorCode::Timeout, "it has not come (or does not know this job's secret)");
  }
  Proposal& mine = *wait.proposal;
  Segment& segment = segment_of(mine.memory);
  if (segment.accepted.load(std::memory_order_acquire) != 0) {
    net::Mac answer;
    std::memcpy(answer.data(), segment.mac, answer.size());
    if (!net::same(answer, prove_acceptance(mine.offer, wait.secret)))
      return error(ErrorCode::RemoteError, "the other end does not know this job's secret");
    mine.memory.close_descriptor();
    return std::move(mine.memory);
  }
  if (over) {
    // If the peer takes the offer at this moment, it gets a closed channel.
    segment.sides[0].closed.store(1, std::memory_order_release);
    if (mine.slot >= 0) mine.box.withdraw(mine.slot, mine.offer);
    return cancelled.ok() ? error(ErrorCode::Timeout, "it has not answered") : cancelled;
  }
  if (mine.slot < 0) {
    mine.slot = mine.box.post(mine.offer);
    if (mine.slot >= 0) mine.bell.ring();
  }
  return {};
}

// Returns true if the offer is dealt with. An offer for a communicator in which nobody connects yet
// stays.
bool Connector::accept(const Offer& offer) {
  const Wait* wait = nullptr;
  for (const auto& one : waits_) {
    if (one->id.communicator != offer.communicator) continue;
    wait = one.get();
    if (one->id.self == offer.to && one->id.peer == offer.from) break;
  }
  if (wait == nullptr) return is_dead(offer.segment.pid);
  const Status status = attach(offer, *wait);
  if (!status.ok())
    log_.warn("transport shm: refused the channel of rank %d: %s", offer.from,
              status.message().c_str());
  return true;
}

Status Connector::attach(const Offer& offer, const Wait& wait) {
  if (!net::same(offer.proof, prove_offer(offer, wait.secret)))
    return error(ErrorCode::RemoteError, "it does not know this job's secret");
  // The receiver of the segment checks the window's exact size (ShmTransport::open).
  const bool plausible =
      offer.segment.bytes == sizeof(Segment) ||
      (offer.segment.bytes > kWindowBegin && offer.segment.bytes <= bytes_with(kMaxWindow));
  if (!plausible) return error(ErrorCode::RemoteError, "it runs another version of hetccl");
  HETCCL_ASSIGN(const RemoteWaker bell, RemoteWaker::open(offer.bell));
  HETCCL_ASSIGN(SharedMemory memory, SharedMemory::attach(offer.segment));
  Segment& segment = segment_of(memory);
  segment.sides[1].waker = waker_ != nullptr ? waker_->address() : WakerAddress{};
  const net::Mac answer = prove_acceptance(offer, wait.secret);
  std::memcpy(segment.mac, answer.data(), answer.size());
  segment.accepted.store(1, std::memory_order_release);
  bell.ring();
  accepted_.insert_or_assign({offer.communicator, offer.to, offer.from}, std::move(memory));
  return {};
}

void Connector::forget(uint64_t communicator, int self) {
  const std::lock_guard lock(mutex_);
  std::erase_if(accepted_, [&](const auto& entry) {
    if (std::get<0>(entry.first) != communicator || std::get<1>(entry.first) != self) return false;
    segment_of(entry.second).sides[1].closed.store(1);
    return true;
  });
}

}  // namespace hetccl::transport::shm
