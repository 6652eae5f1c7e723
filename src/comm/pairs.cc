#include "comm/pairs.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"

namespace hetccl::comm {
namespace {

using std::chrono::milliseconds;

// The longest time that the end of a communicator waits for pairs being made.
constexpr milliseconds kLastWait{5000};
constexpr std::chrono::hours kLongestSleep{1};
constexpr PairOpening::Numbers kNever{exec::Route::kNever, exec::Route::kNever};

}  // namespace

Pairs::Pairs(const Environment& environment, std::unique_ptr<Cancel> cancel)
    : environment_(environment),
      clock_(environment.context.engine().clock()),
      rank_(environment.membership.rank()),
      cancel_(std::move(cancel)),
      mail_(environment.membership.session(), [this] { bell_.ring(); }),
      driving_([this](const Status& why) {
        environment_.membership.verdict().report_own(rank_, why.with("opening a pair"));
      }) {}

Result<std::unique_ptr<Pairs>> Pairs::create(const Environment& environment) {
  HETCCL_ASSIGN(auto cancel, Cancel::create());
  return std::unique_ptr<Pairs>(new Pairs(environment, std::move(cancel)));
}

// Both ends get the same result, because a cluster's libraries are alike.
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
  if (!may_open(peer)) return settle(peer, kNever);
  PairOpening::Owner& owner = *this;
  auto opening = std::make_unique<PairOpening>(owner, mail_, rank_, peer, prepare(peer));
  {
    const std::lock_guard lock(mutex_);
    arrived_.push_back(std::move(opening));
  }
  bell_.ring();
  const Status posted = driving_.post([this] { drive(); });
  if (posted.ok()) return;
  environment_.context.log.warn("messages with rank %d: %s", peer, posted.message().c_str());
  settle(peer, kNever);
  const std::lock_guard lock(mutex_);
  arrived_.clear();  // safe: no driving thread exists
}

// Returns no share if launches wait for their kernels (CUDA_LAUNCH_BLOCKING): a kernel that waits
// for the other end could only be aborted during the call, and NCCL might free what the call still
// uses.
PairBudget::Share Pairs::prepare(int peer) {
  Runtime& runtime = environment_.context.runtime;
  if (runtime.config().launches_wait) return {};
  auto share = runtime.pairs().take(environment_.device.multiprocessors());
  if (share.blocks() == 0) return share;
  const Status made = make_libraries(peer);
  if (made.ok()) return share;
  environment_.context.log.warn("messages with rank %d: %s", peer, made.message().c_str());
  return {};
}

// Runs on the launching thread: a driver may block the call until the device drains, which may need
// messages that the pairs' thread holds back while their ends agree.
Status Pairs::make_libraries(int peer) {
  Libraries made;
  for (size_t i = 0; i < made.size(); ++i) {
    HETCCL_ASSIGN(made[i], environment_.executor.make_library(peer, sends(i, peer)));
  }
  const std::lock_guard lock(mutex_);
  libraries_[peer] = std::move(made);
  return {};
}

void Pairs::drive() {
  std::unique_lock lock(mutex_);
  for (;;) {
    openings_.splice(openings_.end(), arrived_);
    if (openings_.empty()) return;
    advances_ = true;
    lock.unlock();
    const TimePoint again = advance_all();
    lock.lock();
    advances_ = false;
    under_way_ = std::any_of(openings_.begin(), openings_.end(),
                             [](const auto& one) { return one->under_way(); });
    rested_.notify_all();
    if (openings_.empty()) continue;
    lock.unlock();
    bell_.wait(again - clock_.now());
    lock.lock();
  }
}

// Returns the time of the next call, unless the bell rings before.
TimePoint Pairs::advance_all() {
  const TimePoint now = clock_.now();
  TimePoint again = now + kLongestSleep;
  openings_.remove_if([&](const auto& one) { return one->advance(now, again); });
  return again;
}

void Pairs::settle(int peer, const PairOpening::Numbers& first) {
  environment_.context.engine().exclusively([&] {
    environment_.executor.route(peer, true).settle(first.sent);
    environment_.executor.route(peer, false).settle(first.received);
  });
}

Result<ccl::UniqueId> Pairs::make_id() {
  return environment_.library.unique_id(2, Channels::patient_limit(*cancel_));
}

Result<std::unique_ptr<ccl::PendingPair>> Pairs::begin_pair(const ccl::PairSeat& seat) {
  const Context& context = environment_.context;
  WaitLimit limit(context.runtime.config().init_timeout_ms, cancel_.get());
  limit.clock = &clock_;
  return environment_.library.begin_pair(seat, &context.engine().waker(), limit,
                                         [this] { bell_.ring(); });
}

PairOpening::Numbers Pairs::propose(int peer) {
  PairOpening::Numbers next;
  environment_.context.engine().exclusively([&] {
    next = {environment_.executor.route(peer, true).propose(),
            environment_.executor.route(peer, false).propose()};
  });
  return next;
}

void Pairs::carry(PairOpening& opening, const PairOpening::Numbers& first) {
  const int peer = opening.peer();
  const std::array<ccl::Communicator*, 2> pairs{opening.communicators()[0].get(),
                                                opening.communicators()[1].get()};
  Libraries libraries;
  {
    const std::lock_guard lock(mutex_);
    libraries = std::move(libraries_.extract(peer).mapped());
    for (auto& one : opening.communicators()) used_.push_back(std::move(one));
    shares_.push_back(std::move(opening.share()));
  }
  environment_.context.engine().exclusively([&] {
    for (size_t i = 0; i < pairs.size(); ++i) {
      environment_.executor.use_library(peer, sends(i, peer), std::move(libraries[i]), *pairs[i]);
    }
  });
  settle(peer, first);
  environment_.context.log.info(
      "%s carries messages to rank %d from #%llu on, from it from #%llu on",
      environment_.library.name().c_str(), peer, static_cast<unsigned long long>(first.sent),
      static_cast<unsigned long long>(first.received));
}

void Pairs::refuse(int peer, const Status& why) {
  settle(peer, kNever);
  if (cancel_->is_set() || environment_.membership.verdict().failed()) return;
  environment_.context.log.info("a channel carries messages with rank %d: %s", peer,
                                why.message().c_str());
}

void Pairs::disagree(int peer, const Status& why) {
  Verdict& verdict = environment_.membership.verdict();
  if (verdict.failed()) return;
  verdict.report(ErrorCode::RemoteError, peer,
                 format("rank %d: agreeing with rank %d on how messages go: %s", rank_, peer,
                        why.message().c_str()));
}

// Keeps it until the end: if the other end has none, destroying this one would wait for it.
void Pairs::drop(std::unique_ptr<ccl::Communicator> communicator) {
  communicator->abort();
  const std::lock_guard lock(mutex_);
  unused_.push_back(std::move(communicator));
}

void Pairs::give_up(const Status& why) {
  cancel_->set(why);
  bell_.ring();
  const std::lock_guard lock(mutex_);
  rested_.notify_all();
}

Status Pairs::async_error() {
  const std::lock_guard lock(mutex_);
  for (const auto& one : used_) HETCCL_TRY(one->async_error());
  return {};
}

// Openings under way run to their end: if this rank left, the other end might wait for it inside
// the library.
void Pairs::stop(TimePoint deadline) {
  const TimePoint now = clock_.now();
  const Duration patience = std::min(deadline, now + kLastWait) - now;
  {
    std::unique_lock lock(mutex_);
    stops_ = true;
    bell_.ring();
    rested_.wait_for(lock, patience,
                     [this] { return cancel_->is_set() || (!advances_ && !under_way_); });
  }
  give_up(error(ErrorCode::Aborted, "the communicator was destroyed"));
  driving_.wait();
}

void Pairs::close() {
  openings_.clear();
  libraries_.clear();
  used_.clear();
  unused_.clear();
  shares_.clear();
}

}  // namespace hetccl::comm
