// Opens a pair between two ranks of a cluster: one communicator for each direction's messages. Both
// ends run the same state machine and agree by mail on each step. It never blocks, so one thread
// advances the openings of many peers, whatever order the ranks open them in.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/clock.h"
#include "ccl/ccl.h"
#include "comm/mail.h"
#include "comm/pair_budget.h"

namespace hetccl::comm {

/// Used by one thread at a time.
class PairOpening {
 public:
  // The first carries the lower rank's sends, the second the higher rank's.
  using Communicators = std::array<std::unique_ptr<ccl::Communicator>, 2>;
  /// Message numbers: the next that this rank sends to the peer, and the next that it receives.
  struct Numbers {
    uint64_t sent = 0, received = 0;
  };

  /// The rank's side of an opening. No call may wait for another rank or for a device.
  class Owner {
   public:
    virtual ~Owner() = default;
    virtual Result<ccl::UniqueId> make_id() = 0;
    virtual Result<std::unique_ptr<ccl::PendingPair>> begin_pair(const ccl::PairSeat& seat) = 0;
    /// Returns the numbers of the next messages. These messages do not start until `carry` or
    /// `refuse`.
    virtual Numbers propose(int peer) = 0;
    /// Both ends agree: the communicators carry all messages from `first` on.
    virtual void carry(PairOpening& opening, const Numbers& first) = 0;
    /// Channels carry all messages.
    virtual void refuse(int peer, const Status& why) = 0;
    /// Like `refuse`, but the peer may know this rank's numbers and act on them.
    virtual void disagree(int peer, const Status& why) = 0;
    /// Aborts a communicator that carries no message.
    virtual void drop(std::unique_ptr<ccl::Communicator> communicator) = 0;
    /// Returns an error once the communicator has failed: every opening ends now.
    [[nodiscard]] virtual Status cancelled() = 0;
    /// Returns whether new attempts must not begin.
    [[nodiscard]] virtual bool stops() = 0;
    [[nodiscard]] virtual bool has_left(int peer) = 0;
    virtual void log(const std::string& line) = 0;
  };

  /// Opens the pair of `rank` and `peer` with the thread blocks of `share`. A share without blocks
  /// means that this rank cannot have the pair; the peer is told so. `owner` and `mail` must
  /// outlive it.
  PairOpening(Owner& owner, Mail& mail, int rank, int peer, PairBudget::Share share);

  /// Advances as far as possible. Returns true once it has ended. Otherwise call it again when mail
  /// comes, when the library calls `wake`, and at `again` at the latest; this call may move `again`
  /// to an earlier time.
  bool advance(TimePoint now, TimePoint& again);
  /// Returns whether the peer has made an offer too, and so may wait for this rank.
  [[nodiscard]] bool under_way() const { return state_ != State::Offering && !ended(); }
  [[nodiscard]] int peer() const { return peer_; }
  // Returns the communicators of an agreed pair.
  [[nodiscard]] Communicators& communicators() { return communicators_; }
  [[nodiscard]] PairBudget::Share& share() { return share_; }

 private:
  enum class State : uint8_t {
    Offering,
    Identifying,
    Making,
    Comparing,
    Pausing,
    Agreeing,
    Doubting,
    Ended
  };
  [[nodiscard]] bool ended() const { return state_ == State::Ended; }
  // Returns true if the state changed.
  bool step(TimePoint now, TimePoint& again);
  bool take_offer(TimePoint now, TimePoint& again);
  bool take_id(TimePoint now, TimePoint& again);
  bool poll_library(TimePoint now, TimePoint& again);
  bool take_attempt(TimePoint now, TimePoint& again);
  bool pause(TimePoint now, TimePoint& again);
  bool take_outcome(TimePoint now, TimePoint& again);
  bool await_departure(TimePoint now, TimePoint& again);
  void identify();
  void compare(ccl::PendingPair::Made made);
  void retry(TimePoint now);
  void agree(const Status& made);
  void end(const Status& why);

  Owner& owner_;
  Mail& mail_;
  const int rank_, peer_;
  PairBudget::Share share_;
  State state_ = State::Offering;
  Communicators communicators_;
  size_t index_ = 0;      // index of the communicator being made
  ccl::UniqueId own_id_;  // made by the lower rank
  std::unique_ptr<ccl::PendingPair> pending_;
  ccl::PendingPair::Made made_ = std::unique_ptr<ccl::Communicator>();
  bool would_retry_ = false;  // this rank can retry; the peer is told
  std::chrono::milliseconds pause_{};
  TimePoint until_{};  // end of a pause, or of the doubt
  Status failure_;     // why this rank has no pair
  Numbers mine_;
};

}  // namespace hetccl::comm
