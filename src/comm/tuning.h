// Online tuning of one communicator. All ranks agree on the setting of each call without waiting
// for each other; measured times feed the search.
#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "bootstrap/bootstrap.h"
#include "progress/engine.h"
#include "tune/agreement.h"

namespace hetccl::comm {

/// Thread-safe.
class Tuning {
 public:
  struct Options {
    bool searches = false;  ///< false: known settings stay as they are
    double budget = 0.02;
    bool by_steps = false;         ///< shortens the program's steps, not each call
    bool timing_costs = false;     ///< as ConductorOptions
    std::function<bool()> failed;  ///< returns whether the communicator has failed
  };
  /// Session and engine must outlive it.
  Tuning(bootstrap::Session& session, progress::Engine& engine, Options options);

  /// Adds settings learnt earlier. Call before the first call, with the same settings on all ranks.
  void add_learnt(std::span<const tune::Learnt> learnt);
  /// Makes calls of `key` use `setting` from this rank's next call on; no search changes it. Every
  /// rank must do so between the same calls.
  void set(const tune::Key& key, const tune::Setting& setting);
  /// Returns whether any call may have another setting than the cost model's.
  [[nodiscard]] bool active() const { return active_.load(std::memory_order_acquire); }

  struct Use {
    std::optional<tune::Setting> setting;
    uint64_t round = 0;
    bool timed = false;
  };
  /// Returns how the next call, with blocks of `bytes`, runs. The launching thread calls it for
  /// each call. If this rank is in doubt (ledger.h) it waits for the verdict; if the communicator
  /// fails or rank 0 leaves meanwhile, the call is not tuned. A `captured` call becomes part of a
  /// graph, and takes part in no trial.
  Use use(const std::optional<tune::Key>& key, uint64_t bytes, uint64_t sequence, bool captured,
          TimePoint now, const tune::Conductor::SpaceMaker& make_space);
  /// Called when the program has finished a step.
  void step(TimePoint now);
  /// Called when a timed call completed at `now`, by the thread that drives. Calls end in the order
  /// of their numbers.
  void on_timed(uint64_t sequence, Duration took, TimePoint now);
  /// Called by the control plane's thread.
  void on_note(int from, std::span<const uint8_t> bytes);
  /// Called when `rank` has left, after all its notes. Thread-safe.
  void on_left(int rank);
  /// On rank 0, at its last call: cancels open trials and keeps what was learnt.
  void finish();

  /// On rank 0 of a job that searches: returns how far it came.
  [[nodiscard]] std::optional<tune::Conductor::Progress> progress();
  /// On rank 0: returns whether more was learnt since the last call.
  [[nodiscard]] bool poll_new_results();
  /// Returns the learnt settings on rank 0, nothing elsewhere.
  [[nodiscard]] std::vector<tune::Learnt> learnt();
  [[nodiscard]] Json describe();

 private:
  // A call whose time is not known yet.
  struct Timed {
    uint64_t sequence = 0;
    std::optional<tune::Ledger::Use::Trial> trial;
    tune::Key key;
  };
  using TrialId = std::pair<uint64_t, uint32_t>;  // round, change

  // This rank's times of a trial's phases so far.
  struct Phases {
    std::vector<double> us;
    TimePoint since{};  // start of the phase's first call, or end of the previous phase
    Duration calls{};   // total time of the counted calls in the current phase
  };

  // Requires mutex_.
  void add_time(const Timed& call, Duration took, TimePoint now);
  void send_note(tune::Agreement::To to, const tune::Note& note);
  /// Releases mutex_ while it waits. Returns false if no verdict will come.
  bool await_verdict(std::unique_lock<std::mutex>& lock);

  bootstrap::Session& session_;
  progress::Engine& engine_;
  const Options options_;
  std::atomic<bool> active_;
  std::atomic<bool> leader_left_{false};
  std::mutex mutex_;  // guards the members below
  tune::Agreement agreement_;
  std::atomic<uint64_t> settled_{0};  // the agreement's count; read without mutex_
  std::vector<tune::Learnt> known_;   // at the communicator's creation
  std::deque<Timed> timed_;
  std::map<TrialId, Phases> phases_;
  uint64_t n_set_ = 0;  // calls of `set`
  bool finished_ = false;
};

}  // namespace hetccl::comm
