// One rank's part of the agreement on settings: which setting each of its calls uses.
//
// Rank 0 proposes changes from a future call number on, far enough ahead that all ranks should hear
// of it in time. Each rank votes whether it has not reached that call. If all vote yes rank 0
// commits, else it cancels, and all keep the old setting. A rank that voted yes and reaches the
// call before the verdict is *in doubt*: it waits for rank 0, which decides when it reaches that
// call itself or when it is asked. So no rank waits for one that has not voted, and no two ranks
// use different settings for one call.
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
    std::optional<Setting> setting;  ///< none: the cost model's choice
    uint64_t round = 0;              ///< that decided the setting; equal on all ranks
    /// The trial that the call is part of: round and change, the call's index in the trial, and its
    /// phase.
    struct Trial {
      uint64_t round = 0;
      uint32_t change = 0, call = 0, calls = 0;
      uint32_t phase = 0, phases = 1;
      bool ends_phase = false;  ///< the last call of its phase
    };
    std::optional<Trial> trial;
  };

  /// Adds a setting known at the communicator's creation, on all ranks alike.
  void add_known(const Key& key, const Setting& setting);
  /// Sets a user's choice, between the same calls on all ranks. Ends the key's trial.
  void set(const Key& key, const Setting& setting, uint64_t round);
  /// Notes a proposal. Votes yes if this rank has not reached its first call yet.
  [[nodiscard]] Vote vote(const Proposal& proposal);
  void settle(const Verdict& verdict);
  /// Returns the round that waits for its verdict.
  [[nodiscard]] std::optional<uint64_t> open_round() const;

  /// Returns how call `sequence` runs; nothing while that is in doubt: ask again after `settle`.
  /// Numbers must ascend. A call without a key is only counted; a `steady` one takes part in no
  /// trial.
  [[nodiscard]] std::optional<Use> use(const std::optional<Key>& key, uint64_t sequence,
                                       bool steady = false);

 private:
  struct Trial {
    Change change;
    uint64_t round = 0;
    uint32_t index = 0;  // index of the change in its proposal
    uint32_t next = 0;   // the next call
    uint32_t rest = 0;   // calls until `next` counts
  };
  struct State {
    std::optional<Setting> setting;
    uint64_t round = 0;
    std::optional<Trial> trial;
    bool set = false;  // by a user: proposals do not change it
  };
  struct Pending {
    Proposal proposal;
    bool committed = false;
  };
  void apply(const Proposal& proposal);

  std::map<Key, State> states_;
  std::deque<Pending> pending_;  // by `from`; only the last may wait for its verdict
  uint64_t newest_ = 0;          // latest round seen
  uint64_t next_ = 0;            // number of the next call
};

}  // namespace hetccl::tune
