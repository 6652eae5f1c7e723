// How two ranks of a cluster come to have a pair: a communicator of their own for the messages of
// each direction. Both run the same state machine, and agree by mail on each step. It waits for
// nothing itself, so that one thread advances those of many peers, whatever the order in which
// ranks open them.
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

/// By one thread at a time.
class PairOpening {
 public:
  // The first carries what the lower rank sends, the second what the higher one sends.
  using Communicators = std::array<std::unique_ptr<ccl::Communicator>, 2>;
  /// Numbers of messages: of one that this rank sends to the peer, of one that it receives.
  struct Numbers {
    uint64_t sent = 0, received = 0;
  };

  /// Does for an opening what takes its rank. No call may wait for another rank or for a device.
  class Owner {
   public:
    virtual ~Owner() = default;
    virtual Result<ccl::UniqueId> make_id() = 0;
    virtual Result<std::unique_ptr<ccl::PendingPair>> begin_pair(const ccl::PairSeat& seat) = 0;
    /// The numbers of the next messages. None of them starts until `carry` or `refuse`.
    virtual Numbers propose(int peer) = 0;
    /// Both ends agree: the communicators carry the messages from `first` on.
    virtual void carry(PairOpening& opening, const Numbers& first) = 0;
    /// Channels carry all messages.
    virtual void refuse(int peer, const Status& why) = 0;
    /// As `refuse`; but the peer may have learnt this rank's numbers, and go by them.
    virtual void disagree(int peer, const Status& why) = 0;
    /// Aborts a communicator that carries nothing.
    virtual void drop(std::unique_ptr<ccl::Communicator> communicator) = 0;
    /// Whether nobody waits for pairs any more: each ends now.
    [[nodiscard]] virtual Status cancelled() = 0;
    /// Whether pairs that are not being made are not to be begun.
    [[nodiscard]] virtual bool stops() = 0;
    [[nodiscard]] virtual bool has_left(int peer) = 0;
    virtual void log(const std::string& line) = 0;
  };

  /// Between `rank` and `peer`, with the blocks of `share`; none: this rank cannot have the pair,
  /// and the peer learns it. `owner` and `mail` outlive it.
  PairOpening(Owner& owner, Mail& mail, int rank, int peer, PairBudget::Share share);

  /// Goes on as far as it can: true once it has ended. Else call it again when mail has come or the
  /// library has called `wake`, and at `again`, which this only makes earlier.
  bool advance(TimePoint now, TimePoint& again);
  /// The peer has made an offer, too: it may wait for this rank.
  [[nodiscard]] bool under_way() const { return state_ != State::Offering && !ended(); }
  [[nodiscard]] int peer() const { return peer_; }
  // Of one that both ends have agreed on.
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
  // True where it has come to another state.
  bool step(TimePoint now, TimePoint& again);
  bool hear_offer(TimePoint now, TimePoint& again);
  bool hear_id(TimePoint now, TimePoint& again);
  bool look_at_library(TimePoint now, TimePoint& again);
  bool hear_attempt(TimePoint now, TimePoint& again);
  bool pause(TimePoint now, TimePoint& again);
  bool hear_outcome(TimePoint now, TimePoint& again);
  bool doubt(TimePoint now, TimePoint& again);
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
  size_t index_ = 0;      // of the communicator that is being made
  ccl::UniqueId own_id_;  // the lower rank's
  std::unique_ptr<ccl::PendingPair> pending_;
  ccl::PendingPair::Made made_ = std::unique_ptr<ccl::Communicator>();
  bool would_retry_ = false;  // this rank; the peer hears it
  std::chrono::milliseconds pause_{};
  TimePoint until_{};  // of a pause, or of doubt
  Status failure_;     // why this rank has no pair
  Numbers mine_;
};

}  // namespace hetccl::comm
