#include "comm/pairs.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "base/clock.h"

namespace hetccl::comm {

using std::chrono::milliseconds;

namespace {

constexpr milliseconds kLookTime{1};
// How long the end of a communicator waits for pairs that are being made.
constexpr milliseconds kLastWait{5000};
// Between tries to make a communicator: twice as long each time.
constexpr milliseconds kFirstPause{50}, kLastPause{800};
constexpr const char* kInTheWay =
    "other work of the devices keeps the library's first messages from meeting";

// The two ends exchange one of each, in this order.
struct Offer {
  uint32_t blocks = 0;  ///< at most, of each direction; 0: this rank cannot have one more pair
};
// These two once or more for each communicator: of the lower rank's messages, then of the higher
// one's.
struct Id {
  uint32_t made = 0;  ///< 1: the lower rank has it; the higher rank's means nothing
  ccl::UniqueId id;
};
struct Attempt {
  enum State : uint32_t { Failed, Late, Made };
  uint32_t state = Failed;  ///< Late: this rank would try again
};
struct Outcome {
  uint64_t made = 0;                ///< 1: this rank has both communicators, and what follows
  uint64_t sent = 0, received = 0;  ///< the number of its next message each way
};

Status stopped() {
  return error(Code::Aborted, "the communicator was destroyed");
}

}  // namespace

Pairs::Pairs(const Environment& environment, std::unique_ptr<Cancel> cancel)
    : environment_(environment),
      rank_(environment.membership.rank()),
      cancel_(std::move(cancel)),
      mail_(environment.membership.session(), *cancel_),
      opening_([this](const Status& why) {
        environment_.membership.verdict().report_own(rank_, why.with("opening a pair"));
      }) {}

Result<std::unique_ptr<Pairs>> Pairs::create(const Environment& environment) {
  HETCCL_ASSIGN(auto cancel, Cancel::create());
  return std::unique_ptr<Pairs>(new Pairs(environment, std::move(cancel)));
}

// Both ends find the same: a cluster's libraries are alike.
bool Pairs::may_open(int peer) const {
  const bool host = (environment_.device.capabilities() & device::kHostAccessible) != 0;
  return !host && !environment_.channels.crosses(peer) && environment_.library.makes_pairs() &&
         environment_.context.runtime.config().library_messages;
}

void Pairs::meet(std::span<const exec::Message> messages) {
  for (const exec::Message& message : messages) {
    const bool other = message.peer != rank_ && message.peer != exec::kAnyRank;
    if (other && met_.insert(message.peer).second) meet(message.peer);
  }
}

void Pairs::meet(int peer) {
  Status posted;
  const bool opens = may_open(peer);
  if (opens) posted = opening_.post([this, peer] { open(peer); });
  if (opens && posted.ok()) return;
  if (opens)
    environment_.context.log.warn("messages with rank %d: %s", peer, posted.message().c_str());
  settle(peer, exec::Route::kNever, exec::Route::kNever);
}

void Pairs::settle(int peer, uint64_t first_sent, uint64_t first_received) {
  environment_.context.engine().exclusively([&] {
    environment_.executor.route(peer, true).settle(first_sent);
    environment_.executor.route(peer, false).settle(first_received);
  });
}

// Not where launches wait for their kernels: one that waits for the other end can only be ended
// under the call, and NCCL may free what the call still uses.
void Pairs::open(int peer) {
  Runtime& runtime = environment_.context.runtime;
  PairBudget::Share share;
  if (!runtime.config().launches_wait)
    share = runtime.pairs().take(environment_.device.multiprocessors());
  const Status status = try_open(peer, std::move(share));
  if (status.ok()) return;
  settle(peer, exec::Route::kNever, exec::Route::kNever);
  if (cancel_->is_set() || environment_.membership.verdict().failed()) return;
  environment_.context.log.info("a channel carries messages with rank %d: %s", peer,
                                status.message().c_str());
}

Status Pairs::try_open(int peer, PairBudget::Share share) {
  const auto mine = static_cast<uint32_t>(share.blocks());
  HETCCL_ASSIGN(const Offer theirs, mail_.exchange(peer, Offer{mine}));
  if (mine == 0 || theirs.blocks == 0) {
    return error(Code::Unsupported,
                 "rank %d has %d pairs already, or its launches wait for their kernels",
                 mine > 0 ? peer : rank_, PairBudget::kMostPairs);
  }
  share.keep(static_cast<int>(std::min(mine, theirs.blocks)));
  // A talk that has begun goes on to its end: if this rank left, the other one might wait for it
  // inside the library.
  struct Talk {
    explicit Talk(std::atomic<int>& all) : talks(all) { ++talks; }
    ~Talk() { --talks; }
    std::atomic<int>& talks;
  } const talk(talks_);
  return stops_ ? stopped() : negotiate(peer, std::move(share));
}

Status Pairs::negotiate(int peer, PairBudget::Share share) {
  Communicators communicators;
  Status made = make_communicators(peer, share.blocks(), communicators);
  if (made.ok()) made = use(peer, communicators);
  const Status agreed = agree(peer, made);
  for (auto& one : communicators) keep(std::move(one), agreed.ok());
  if (agreed.ok()) {
    const std::lock_guard lock(mutex_);
    shares_.push_back(std::move(share));
  }
  return agreed;
}

Status Pairs::make_communicators(int peer, int blocks, Communicators& made) {
  for (auto& one : made) {
    HETCCL_ASSIGN(one, make_communicator(peer, blocks));
  }
  return {};
}

// The library's first messages run on both devices when they can, not when the callers' program
// says, and may meet other work there that they hold up, and that holds them up. Then both ends
// drop what they have, and try again later.
Result<std::unique_ptr<ccl::Communicator>> Pairs::make_communicator(int peer, int blocks) {
  for (milliseconds pause = kFirstPause;; pause *= 2) {
    HETCCL_ASSIGN(const ccl::UniqueId id, agree_on_id(peer));
    auto made = environment_.library.init_pair(
        id, rank_ < peer ? 0 : 1, blocks, &environment_.context.engine().waker(),
        {environment_.context.runtime.config().init_timeout_ms, cancel_.get()});
    Attempt mine;
    if (made.ok() && made.value() != nullptr) {
      mine.state = Attempt::Made;
    } else if (made.ok() && pause <= kLastPause && !stops_) {
      mine.state = Attempt::Late;
    }
    const auto theirs = mail_.exchange(peer, mine);
    const bool both = theirs.ok() && theirs.value().state == Attempt::Made;
    if (mine.state == Attempt::Made && both) return made;
    HETCCL_TRY(made.status());
    keep(std::move(made).value(), false);
    HETCCL_TRY(theirs.status());
    if (mine.state == Attempt::Failed) return error(Code::Timeout, "%s", kInTheWay);
    if (theirs.value().state == Attempt::Failed) {
      return error(Code::RemoteError, "rank %d could not open the pair", peer);
    }
    environment_.context.log.info("messages with rank %d: %s; the next try is in %lld ms", peer,
                                  kInTheWay, static_cast<long long>(pause.count()));
    const Clock& clock = environment_.context.engine().clock();
    for (const auto end = clock.now() + pause; clock.now() < end && !cancel_->is_set() && !stops_;)
      std::this_thread::sleep_for(kLookTime);
  }
}

Result<ccl::UniqueId> Pairs::agree_on_id(int peer) {
  const bool lower = rank_ < peer;
  Id mine;
  Status made;
  if (lower) {
    auto id = environment_.library.unique_id(2, Channels::patient_limit(*cancel_));
    made = id.status();
    if (made.ok()) mine = {1, id.value()};
  }
  HETCCL_ASSIGN(const Id other, mail_.exchange(peer, mine));
  HETCCL_TRY(made);
  const Id& agreed = lower ? mine : other;
  if (agreed.made != 1) return error(Code::RemoteError, "rank %d has no id", peer);
  return agreed.id;
}

Status Pairs::use(int peer, const Communicators& communicators) {
  for (size_t i = 0; i < communicators.size(); ++i) {
    const bool send = (i == 0) == (rank_ < peer);
    HETCCL_ASSIGN(auto library, environment_.executor.make_library(peer, send, *communicators[i]));
    environment_.context.engine().exclusively(
        [&] { environment_.executor.use_library(peer, send, std::move(library)); });
  }
  return {};
}

// Until the end: streams and programs of messages name them. Where the other end has none,
// destroying this one's would wait for it.
void Pairs::keep(std::unique_ptr<ccl::Communicator> communicator, bool used) {
  if (communicator == nullptr) return;
  if (!used) communicator->abort();
  const std::lock_guard lock(mutex_);
  (used ? used_ : unused_).push_back(std::move(communicator));
}

Status Pairs::async_error() {
  const std::lock_guard lock(mutex_);
  for (const auto& one : used_) HETCCL_TRY(one->async_error());
  return {};
}

// Which message each way is the first that the library carries: the larger of both ends' next ones.
// From when this rank has told its numbers until it knows the other's, it starts no message.
Status Pairs::agree(int peer, const Status& made) {
  Outcome mine;
  mine.made = made.ok() ? 1 : 0;
  if (made.ok()) {
    environment_.context.engine().exclusively([&] {
      mine.sent = environment_.executor.route(peer, true).propose();
      mine.received = environment_.executor.route(peer, false).propose();
    });
  }
  const auto told = mail_.exchange(peer, mine);
  if (!told.ok() && made.ok()) report_disagreement(peer, told.status());
  HETCCL_TRY(made);
  HETCCL_ASSIGN(const Outcome theirs, told);
  if (theirs.made != 1) return error(Code::RemoteError, "rank %d could not open the pair", peer);
  const uint64_t first_sent = std::max(mine.sent, theirs.received);
  const uint64_t first_received = std::max(mine.received, theirs.sent);
  settle(peer, first_sent, first_received);
  environment_.context.log.info(
      "%s carries messages to rank %d from #%llu on, from it from #%llu on",
      environment_.library.name().c_str(), peer, static_cast<unsigned long long>(first_sent),
      static_cast<unsigned long long>(first_received));
  return {};
}

// The other end may have learnt this one's numbers and go by them: then they disagree.
void Pairs::report_disagreement(int peer, const Status& why) {
  Verdict& verdict = environment_.membership.verdict();
  if (cancel_->is_set() || environment_.channels.has_left_soon(peer) || verdict.failed()) return;
  verdict.report(Code::RemoteError, peer,
                 format("rank %d: agreeing with rank %d on how messages go: %s", rank_, peer,
                        why.message().c_str()));
}

void Pairs::stop(TimePoint deadline) {
  const progress::Engine& engine = environment_.context.engine();
  const TimePoint end = std::min(deadline, engine.clock().now() + kLastWait);
  stops_ = true;
  while (talks_ > 0 && !cancel_->is_set() && engine.clock().now() < end)
    std::this_thread::sleep_for(kLookTime);
  give_up(stopped());
  opening_.wait();
}

void Pairs::close() {
  used_.clear();
  unused_.clear();
  shares_.clear();
}

}  // namespace hetccl::comm
