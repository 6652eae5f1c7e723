// One rank's part of the agreement on settings: which one each of its calls uses.
//
// Rank 0 proposes changes from a collective's number on, far enough ahead that all ranks should
// have heard of it by then; each answers whether it has. If all said yes, rank 0 commits, else it
// cancels. A rank that was not reached in time keeps the old setting, and so do all. A rank that
// has said yes and comes to that call before the verdict is *in doubt*: it waits for rank 0, which
// decides when it comes to that call itself, or when it is asked. So nobody waits for a rank that
// has not answered, and no two ranks use different settings for one call.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>

#include "tune/note.h"

namespace hetccl::tune {

/// Not thread-safe.
class Ledger {
 public:
  /// How one call runs.
  struct Use {
    std::optional<Setting> setting;  ///< none: what the cost model says
    uint64_t round = 0;              ///< in which it was decided; equal on all ranks
    /// Of a trial: the round and change, which of the trial's calls this is, and which of its
    /// phases the call belongs to.
    struct Trial {
      uint64_t round = 0;
      uint32_t change = 0, call = 0, calls = 0;
      uint32_t phase = 0, phases = 1;
      bool ends_phase = false;  ///< the last call of its phase
    };
    std::optional<Trial> trial;
  };

  /// What was known when the communicator was made, to all ranks alike.
  void know(const Key& key, const Setting& setting);
  /// What a user sets, between the same calls on all ranks. Ends the key's trial.
  void set(const Key& key, const Setting& setting, uint64_t round);
  /// Notes a proposal, and says whether this rank has not come to its first call yet.
  [[nodiscard]] Vote vote(const Proposal& proposal);
  void settle(const Verdict& verdict);
  /// The proposal that waits for its verdict.
  [[nodiscard]] std::optional<uint64_t> open_round() const;

  /// How call `sequence` runs; nothing while that is in doubt: ask again after `settle`. Numbers
  /// ascend. A call without a key only counts; a `steady` one is part of no trial.
  [[nodiscard]] std::optional<Use> use(const std::optional<Key>& key, uint64_t sequence,
                                       bool steady = false);

 private:
  struct Trial {
    Change change;
    uint64_t round = 0;
    uint32_t index = 0;  // of the change in its proposal
    uint32_t next = 0;   // call
    uint32_t rest = 0;   // calls until that one
  };
  struct State {
    std::optional<Setting> setting;
    uint64_t round = 0;
    std::optional<Trial> trial;
    bool set = false;  // by a user: proposals change it no more
  };
  struct Pending {
    Proposal proposal;
    bool committed = false;
  };
  void apply(const Proposal& proposal);

  std::map<Key, State> states_;
  std::deque<Pending> pending_;  // by `from`; the last alone may wait for its verdict
  uint64_t newest_ = 0;          // round
  uint64_t next_ = 0;            // call
};

}  // namespace hetccl::tune
