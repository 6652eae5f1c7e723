// One rank's side of the agreement on settings: its proposals, votes, verdicts and measured times,
// as notes to others. Its driver sends the notes and waits.
//
// A change that rank 0 commits takes effect on each rank, rank 0 included, when the verdict has
// been relayed: to all ranks or to none. A change that rank 0 cancels ends on rank 0 at once,
// because other ranks hear nothing further of it.
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
    All,  ///< includes this rank
  };
  /// Sends a note, which may get lost. Must not call this object.
  using Tell = std::function<void(To, const Note&)>;

  Agreement(int rank, Tell tell) : rank_(rank), tell_(std::move(tell)) {}
  /// Makes this rank 0, which searches for settings. Call before the first call.
  void lead(const ConductorOptions& options);
  [[nodiscard]] bool leads() const { return conductor_.has_value(); }
  /// Only on a rank that leads.
  [[nodiscard]] Conductor& conductor() { return *conductor_; }
  [[nodiscard]] const Conductor& conductor() const { return *conductor_; }
  [[nodiscard]] Ledger& ledger() { return ledger_; }

  /// Called on the leading rank before call `sequence`. May make a proposal.
  void propose(const Key& key, uint64_t bytes, uint64_t sequence, TimePoint now,
               const Conductor::SpaceMaker& make_space);
  /// Adds this rank's times of a trial.
  void add(const Samples& samples);
  /// Takes a note from rank `from`.
  void receive_note(int from, const Note& note);
  /// Resolves a doubt about the next call. Rank 0 cancels the round, or repeats that it is
  /// committed; other ranks ask rank 0.
  void resolve_open_round();
  /// Rank 0 makes no more calls: cancels open proposals.
  void finish();
  /// On rank 0: returns whether more was learnt since the last call.
  [[nodiscard]] bool poll_new_results();
  /// Returns the learnt settings on rank 0, nothing elsewhere.
  [[nodiscard]] std::vector<Learnt> learnt() const;
  /// Returns the number of verdicts that the ledger has.
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
  uint64_t n_told_ = 0;  // searches reported by `poll_new_results`
};

}  // namespace hetccl::tune
