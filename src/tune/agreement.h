// One rank's side of the agreement on settings: what it proposes, votes for and decides, and whom
// it tells. How notes travel, and how a rank waits, is its driver's.
//
// A change that rank 0 commits holds on each rank, on rank 0 too, once the verdict has been
// relayed: to all ranks or to none. One that it cancels is over on rank 0 at once, since no rank
// hears anything else of it.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "tune/conductor.h"
#include "tune/ledger.h"

namespace hetccl::tune {

/// Not thread-safe.
class Agreement {
 public:
  static constexpr int kLeader = 0;
  enum class To : uint8_t {
    Leader,
    Others,
    All,  ///< this rank, too
  };
  /// Sends a note, or loses it. Calls nothing of this object.
  using Tell = std::function<void(To, const Note&)>;

  Agreement(int rank, Tell tell) : rank_(rank), tell_(std::move(tell)) {}
  /// On rank 0: searches for settings. Before the first call.
  void lead(const ConductorOptions& options);
  [[nodiscard]] bool leads() const { return conductor_.has_value(); }
  /// Only on a rank that leads.
  [[nodiscard]] Conductor& conductor() { return *conductor_; }
  [[nodiscard]] const Conductor& conductor() const { return *conductor_; }
  [[nodiscard]] Ledger& ledger() { return ledger_; }

  /// Before call `sequence`, where this rank leads: perhaps there is something to propose.
  void propose(const Key& key, uint64_t bytes, uint64_t sequence, TimePoint now,
               const Conductor::SpaceMaker& make_space);
  /// The times of a trial on this rank.
  void add(const Samples& samples);
  /// A note from rank `from`.
  void hear(int from, const Note& note);
  /// The call that comes is in doubt. Rank 0 cancels the round, or tells once more that it is
  /// committed; others ask rank 0.
  void resolve_doubt();
  /// Rank 0 makes no more calls: what is open is cancelled.
  void finish();
  /// On rank 0: whether more was learnt since it was last asked.
  [[nodiscard]] bool take_news();
  /// On rank 0; elsewhere empty.
  [[nodiscard]] std::vector<Learnt> learnt() const;
  /// Verdicts that the ledger has.
  [[nodiscard]] uint64_t n_settled() const { return n_settled_; }

 private:
  void count(int rank, const Vote& vote);
  void decide(const Verdict& verdict);
  void settle(const Verdict& verdict);

  const int rank_;
  const Tell tell_;
  bool alone_ = false;
  Ledger ledger_;
  std::optional<Conductor> conductor_;
  uint64_t n_settled_ = 0;
  uint64_t n_told_ = 0;  // searches that `take_news` has told of
};

}  // namespace hetccl::tune
