#include "comm/pairs.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "comm/talk.h"

namespace hetccl::comm {

using std::chrono::milliseconds;

namespace {

// Of a rank: what waits in their communicators takes room on its device (Library::init_pair).
constexpr int kMostPairs = 8;
// The other end may be long in coming.
constexpr int64_t kPatienceMs = 100'000'000'000;
constexpr milliseconds kLookTime{1};
// How long the end of a communicator waits for pairs that are being made.
constexpr milliseconds kLastWait{5000};

// What the two ends tell each other, in this order, each a message of fixed length.
struct Offer {
  uint32_t room = 0;     ///< 1: this rank can have one more pair
  ccl::UniqueId ids[2];  ///< the lower rank's, where it has room
};
struct Outcome {
  uint64_t made = 0;                ///< 1: this rank has both communicators, and what follows
  uint64_t sent = 0, received = 0;  ///< the number of its next message each way
};
struct Farewell {
  uint32_t nothing = 0;
};

Status stopped() {
  return error(Code::Aborted, "the communicator was destroyed");
}

}  // namespace

Pairs::Pairs(const Environment& environment, std::unique_ptr<Cancel> cancel)
    : environment_(environment), rank_(environment.session.rank()), cancel_(std::move(cancel)) {}

Result<std::unique_ptr<Pairs>> Pairs::create(const Environment& environment) {
  HETCCL_ASSIGN(auto cancel, Cancel::create());
  return std::unique_ptr<Pairs>(new Pairs(environment, std::move(cancel)));
}

// Both ends find the same: a cluster's libraries are alike.
bool Pairs::may_open(int peer) const {
  const bool host = (environment_.device.capabilities() & device::kHostAccessible) != 0;
  return !host && !environment_.channels.crosses(peer) && environment_.library.makes_pairs() &&
         environment_.runtime.config().library_messages;
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
  if (opens) environment_.log.warn("messages with rank %d: %s", peer, posted.message().c_str());
  settle(peer, exec::Route::kNever, exec::Route::kNever);
}

void Pairs::settle(int peer, uint64_t first_sent, uint64_t first_received) {
  environment_.runtime.engine().exclusively([&] {
    environment_.messages.route(peer, true).settle(first_sent);
    environment_.messages.route(peer, false).settle(first_received);
  });
}

void Pairs::open(int peer) {
  const bool room = taken_.fetch_add(1) < kMostPairs;
  const Status status = try_open(peer, room);
  if (status.ok()) return;
  taken_.fetch_sub(1);
  settle(peer, exec::Route::kNever, exec::Route::kNever);
  if (cancel_->is_set() || environment_.verdict.failed()) return;
  environment_.log.info("a channel carries messages with rank %d: %s", peer,
                        status.message().c_str());
}

Status Pairs::try_open(int peer, bool room) {
  WaitLimit limit(kPatienceMs, cancel_.get());
  limit.patient = true;
  const uint64_t number = Channels::pairs_number(environment_.session);
  HETCCL_ASSIGN(auto channel, environment_.channels.make_channel({number, rank_, peer}, limit));
  Talk talk(environment_.runtime.engine(), std::move(channel), number, *cancel_);
  if (!begin_talk()) return stopped();
  Status status = negotiate(peer, talk, room);
  // What this rank has told must have arrived before the channel closes.
  static_cast<void>(talk.exchange(Farewell()));
  end_talk();
  return status;
}

// What both ends have begun they end, where they can: who waits inside a library for an end that
// has gone may wait for long.
bool Pairs::begin_talk() {
  const std::lock_guard lock(mutex_);
  if (!stops_) ++talks_;
  return !stops_;
}

void Pairs::end_talk() {
  const std::lock_guard lock(mutex_);
  --talks_;
}

bool Pairs::has_ended() {
  const std::lock_guard lock(mutex_);
  stops_ = true;
  return talks_ == 0;
}

Status Pairs::negotiate(int peer, Talk& talk, bool room) {
  const bool lower = rank_ < peer;
  Offer mine;
  if (room && lower) {
    for (ccl::UniqueId& id : mine.ids) {
      HETCCL_ASSIGN(id, environment_.library.unique_id(2));
    }
  }
  mine.room = room ? 1 : 0;
  HETCCL_ASSIGN(const Offer theirs, talk.exchange(mine));
  if (room && theirs.room == 1) {
    const Offer& ids = lower ? mine : theirs;
    return agree(peer, talk, init(peer, {ids.ids[0], ids.ids[1]}));
  }
  for (const ccl::UniqueId& id : mine.ids) {
    if (room && lower) environment_.library.forget(id);
  }
  return error(Code::Unsupported, "rank %d has %d pairs already", room ? peer : rank_, kMostPairs);
}

Result<Pairs::Communicators> Pairs::init(int peer, const Ids& ids) {
  Communicators made;
  Status status;
  for (size_t i = 0; i < ids.size() && status.ok(); ++i) {
    auto one = environment_.library.init_pair(
        ids[i], rank_ < peer ? 0 : 1, &environment_.runtime.engine().waker(),
        {environment_.runtime.config().init_timeout_ms, cancel_.get()});
    status = one.status();
    if (status.ok()) made[i] = std::move(one).value();
  }
  HETCCL_TRY(std::move(status));
  return made;
}

// Which message each way is the first that the library carries: the larger of both ends' next ones.
// From when this rank has told its numbers until it knows the other's, it starts no message.
Status Pairs::agree(int peer, Talk& talk, Result<Communicators> made) {
  Outcome mine;
  mine.made = made.ok() ? 1 : 0;
  if (made.ok()) {
    HETCCL_TRY(use(peer, std::move(made).value()));
    environment_.runtime.engine().exclusively([&] {
      mine.sent = environment_.messages.route(peer, true).propose();
      mine.received = environment_.messages.route(peer, false).propose();
    });
  }
  HETCCL_ASSIGN(const Outcome theirs, talk.exchange(mine));
  HETCCL_TRY(made.status());
  if (theirs.made != 1) return error(Code::RemoteError, "rank %d could not open the pair", peer);
  const uint64_t first_sent = std::max(mine.sent, theirs.received);
  const uint64_t first_received = std::max(mine.received, theirs.sent);
  settle(peer, first_sent, first_received);
  environment_.log.info("%s carries messages to rank %d from #%llu on, from it from #%llu on",
                        environment_.library.name().c_str(), peer,
                        static_cast<unsigned long long>(first_sent),
                        static_cast<unsigned long long>(first_received));
  return {};
}

Status Pairs::use(int peer, Communicators made) {
  for (size_t i = 0; i < made.size(); ++i) {
    const bool send = (i == 0) == (rank_ < peer);
    HETCCL_ASSIGN(auto library, environment_.messages.make_library(peer, send, *made[i]));
    environment_.runtime.engine().exclusively(
        [&] { environment_.messages.use_library(peer, send, std::move(library)); });
    const std::lock_guard lock(mutex_);
    communicators_.push_back(std::move(made[i]));
  }
  return {};
}

void Pairs::stop() {
  const TimePoint end = environment_.runtime.engine().clock().now() + kLastWait;
  while (!has_ended() && !cancel_->is_set() && environment_.runtime.engine().clock().now() < end)
    std::this_thread::sleep_for(kLookTime);
  cancel_->set(stopped());
  opening_.wait();
}

void Pairs::close() {
  communicators_.clear();
}

}  // namespace hetccl::comm
