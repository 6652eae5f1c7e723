#include "comm/pair_opening.h"

#include <algorithm>
#include <utility>

#include "comm/verdict.h"

namespace hetccl::comm {
namespace {

using std::chrono::milliseconds;

// Pauses between attempts to make a communicator; each is twice as long as the last.
constexpr milliseconds kFirstPause{50}, kLastPause{800};
constexpr const char* kInTheWay =
    "other work of the devices keeps the library's first messages from meeting";

// The ends exchange these messages in this order.
struct Offer {
  uint32_t blocks = 0;  ///< at most, in each direction; 0: this rank cannot have one more pair
};
// The next two are exchanged at least once for each communicator: first the one for the lower
// rank's messages, then the other.
struct Id {
  uint32_t made = 0;  ///< 1: the lower rank made `id`; unused from the higher rank
  ccl::UniqueId id;
};
struct Attempt {
  enum State : uint32_t { Failed, Late, Made };
  uint32_t state = Failed;  ///< Late: this rank can retry
};
struct Outcome {
  uint64_t made = 0;                ///< 1: this rank has both communicators, and the numbers below
                                    ///< are valid
  uint64_t sent = 0, received = 0;  ///< the number of its next message in each direction
};

}  // namespace

PairOpening::PairOpening(Owner& owner, Mail& mail, int rank, int peer, PairBudget::Share share)
    : owner_(owner), mail_(mail), rank_(rank), peer_(peer), share_(std::move(share)) {
  mail_.begin(peer, Offer{static_cast<uint32_t>(share_.blocks())});
}

bool PairOpening::advance(TimePoint now, TimePoint& again) {
  do {
    const Status cancelled = owner_.cancelled();
    if (!ended() && !cancelled.ok()) end(cancelled);
  } while (!ended() && step(now, again));
  return ended();
}

bool PairOpening::step(TimePoint now, TimePoint& again) {
  switch (state_) {
    case State::Offering:
      return take_offer(now, again);
    case State::Identifying:
      return take_id(now, again);
    case State::Making:
      return poll_library(now, again);
    case State::Comparing:
      return take_attempt(now, again);
    case State::Pausing:
      return pause(now, again);
    case State::Agreeing:
      return take_outcome(now, again);
    case State::Doubting:
      return await_departure(now, again);
    case State::Ended:
      break;
  }
  return false;
}

bool PairOpening::take_offer(TimePoint now, TimePoint& again) {
  const auto theirs = mail_.take<Offer>(peer_, now, again);
  if (!theirs) return false;
  const auto mine = static_cast<uint32_t>(share_.blocks());
  if (!theirs->ok()) {
    end(theirs->status());
  } else if (mine == 0 || theirs->value().blocks == 0) {
    end(error(ErrorCode::Unsupported,
              "rank %d has %d pairs already, or its launches wait for their kernels",
              mine > 0 ? peer_ : rank_, PairBudget::kMostPairs));
  } else if (owner_.stops()) {
    end(error(ErrorCode::Aborted, "the communicator was destroyed"));
  } else {
    share_.keep(static_cast<int>(std::min(mine, theirs->value().blocks)));
    pause_ = kFirstPause;
    identify();
  }
  return true;
}

void PairOpening::identify() {
  Id mine;
  if (rank_ < peer_) {
    auto id = owner_.make_id();
    failure_ = id.status();
    if (id.ok()) mine = {1, own_id_ = id.value()};
  }
  mail_.begin(peer_, mine);
  state_ = State::Identifying;
}

bool PairOpening::take_id(TimePoint now, TimePoint& again) {
  const auto theirs = mail_.take<Id>(peer_, now, again);
  if (!theirs) return false;
  const bool lower = rank_ < peer_;
  if (!theirs->ok() || !failure_.ok()) {
    agree(theirs->ok() ? failure_ : theirs->status());
  } else if (!lower && theirs->value().made != 1) {
    agree(error(ErrorCode::RemoteError, "rank %d has no id", peer_));
  } else {
    auto begun =
        owner_.begin_pair({lower ? own_id_ : theirs->value().id, lower ? 0 : 1, share_.blocks()});
    state_ = State::Making;
    if (begun.ok()) {
      pending_ = std::move(begun).value();
    } else {
      compare(begun.status());
    }
  }
  return true;
}

bool PairOpening::poll_library(TimePoint now, TimePoint& again) {
  auto made = pending_->poll(now, again);
  if (!made) return false;
  compare(std::move(*made));
  return true;
}

// Compares the outcomes of both ends. A background thread launches the library's first messages, so
// they may be queued behind other work on one GPU and ahead of it on the other; both would wait for
// ever. Then both ends drop the communicator and retry later.
void PairOpening::compare(ccl::PendingPair::Made made) {
  pending_.reset();
  made_ = std::move(made);
  const bool late = made_.ok() && made_.value() == nullptr;
  would_retry_ = late && pause_ <= kLastPause && !owner_.stops();
  Attempt mine;
  if (made_.ok() && !late) mine.state = Attempt::Made;
  if (would_retry_) mine.state = Attempt::Late;
  mail_.begin(peer_, mine);
  state_ = State::Comparing;
}

bool PairOpening::take_attempt(TimePoint now, TimePoint& again) {
  const auto theirs = mail_.take<Attempt>(peer_, now, again);
  if (!theirs) return false;
  const Status mine = made_.status();
  auto made = mine.ok() ? std::move(made_).value() : nullptr;
  const bool has = made != nullptr;
  if (has && theirs->ok() && theirs->value().state == Attempt::Made) {
    communicators_[index_++] = std::move(made);
    pause_ = kFirstPause;
    index_ < communicators_.size() ? identify() : agree({});
    return true;
  }
  if (has) owner_.drop(std::move(made));
  if (!mine.ok()) {
    agree(mine);
  } else if (!theirs->ok()) {
    agree(theirs->status());
  } else if (!has && !would_retry_) {
    agree(error(ErrorCode::Timeout, "%s", kInTheWay));
  } else if (theirs->value().state == Attempt::Failed) {
    agree(error(ErrorCode::RemoteError, "rank %d could not open the pair", peer_));
  } else {
    retry(now);
  }
  return true;
}

void PairOpening::retry(TimePoint now) {
  owner_.log(format("messages with rank %d: %s; the next try is in %lld ms", peer_, kInTheWay,
                    static_cast<long long>(pause_.count())));
  until_ = now + pause_;
  pause_ *= 2;
  state_ = State::Pausing;
}

bool PairOpening::pause(TimePoint now, TimePoint& again) {
  if (now < until_ && !owner_.stops()) {
    again = std::min(again, until_);
    return false;
  }
  identify();
  return true;
}

// Proposes the first message that the library carries each way; it is the larger of both ends' next
// numbers. Between sending its numbers and learning the other's, a rank starts no message.
void PairOpening::agree(const Status& made) {
  failure_ = made;
  Outcome mine;
  if (made.ok()) {
    mine_ = owner_.propose(peer_);
    mine = {1, mine_.sent, mine_.received};
  }
  mail_.begin(peer_, mine);
  state_ = State::Agreeing;
}

bool PairOpening::take_outcome(TimePoint now, TimePoint& again) {
  const auto told = mail_.take<Outcome>(peer_, now, again);
  if (!told) return false;
  if (!failure_.ok()) {
    end(failure_);
  } else if (!told->ok()) {
    failure_ = told->status();
    until_ = now + Verdict::kNewsTime;
    state_ = State::Doubting;
  } else if (const Outcome& theirs = told->value(); theirs.made != 1) {
    end(error(ErrorCode::RemoteError, "rank %d could not open the pair", peer_));
  } else {
    state_ = State::Ended;
    owner_.carry(*this,
                 {std::max(mine_.sent, theirs.received), std::max(mine_.received, theirs.sent)});
  }
  return true;
}

// Waits until the peer has left, and so acts on no agreement, or until the time is over.
bool PairOpening::await_departure(TimePoint now, TimePoint& again) {
  if (now < until_ && !owner_.has_left(peer_)) {
    again = std::min(again, until_);
    return false;
  }
  if (!owner_.has_left(peer_)) owner_.disagree(peer_, failure_);
  end(failure_);
  return true;
}

void PairOpening::end(const Status& why) {
  state_ = State::Ended;
  pending_.reset();
  // Destroying it here might wait for the other end.
  if (made_.ok() && made_.value() != nullptr) owner_.drop(std::move(made_).value());
  for (auto& one : communicators_) {
    if (one != nullptr) owner_.drop(std::move(one));
  }
  owner_.refuse(peer_, why);
}

}  // namespace hetccl::comm
