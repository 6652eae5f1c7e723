// Online tuning of one communicator: which setting each call uses, agreed by all ranks without
// holding any of them up; and the times that the search learns from.
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
    bool searches = false;  ///< else what is known stays as it is
    double budget = 0.02;
    bool by_steps = false;         ///< the program's steps are made short, not each call
    bool timing_costs = false;     ///< as ConductorOptions
    std::function<bool()> failed;  ///< whether the communicator has
  };
  /// Session and engine outlive it.
  Tuning(bootstrap::Session& session, progress::Engine& engine, Options options);

  /// Before the first call, alike on all ranks.
  void know(std::span<const tune::Learnt> learnt);
  /// From this rank's next call on, calls of that key use that setting, and no search changes it.
  /// Every rank does so between the same calls.
  void set(const tune::Key& key, const tune::Setting& setting);
  /// Whether any call may have another setting than the cost model's.
  [[nodiscard]] bool active() const { return active_.load(std::memory_order_acquire); }

  struct Use {
    std::optional<tune::Setting> setting;
    uint64_t round = 0;
    bool timed = false;
  };
  /// How the next call, with blocks of `bytes`, runs. By the launching thread, for each call. Waits
  /// where this rank is in doubt (ledger.h), as long as the communicator lives and rank 0 is in it:
  /// then nothing is tuned. `captured`:
  /// a graph will hold the call, which is part of no trial.
  Use use(const std::optional<tune::Key>& key, uint64_t bytes, uint64_t sequence, bool captured,
          TimePoint now, const tune::Conductor::SpaceMaker& make_space);
  /// The program has finished a step.
  void step(TimePoint now);
  /// A timed call is complete at `now`. By whoever drives; calls end in the order of their numbers.
  void on_timed(uint64_t sequence, Duration took, TimePoint now);
  /// By the control plane's thread.
  void on_note(int from, std::span<const uint8_t> bytes);
  /// That rank has left, after all that it has told. Thread-safe.
  void on_left(int rank);
  /// Rank 0 makes no more calls: what is open is cancelled, and what was learnt stays.
  void finish();

  /// On rank 0: whether more was learnt since it was last asked.
  [[nodiscard]] bool take_news();
  /// On rank 0; elsewhere empty.
  [[nodiscard]] std::vector<tune::Learnt> learnt();
  [[nodiscard]] Json describe();

 private:
  // A call whose time is awaited.
  struct Timed {
    uint64_t sequence = 0;
    std::optional<tune::Ledger::Use::Trial> trial;
    tune::Key key;
  };
  using TrialId = std::pair<uint64_t, uint32_t>;  // round, change

  // The times of a trial's phases so far, on this rank.
  struct Phases {
    std::vector<double> us;
    TimePoint since{};  // the first call's start, or the end of the last phase
    Duration calls{};   // that count, of the phase under way
  };

  // With mutex_ held.
  void add_time(const Timed& call, Duration took, TimePoint now);
  void tell(tune::Agreement::To to, const tune::Note& note);
  /// Lets go of mutex_ meanwhile. False: no verdict will come.
  bool await_verdict(std::unique_lock<std::mutex>& lock);

  bootstrap::Session& session_;
  progress::Engine& engine_;
  const Options options_;
  std::atomic<bool> active_;
  std::atomic<bool> leader_left_{false};
  std::mutex mutex_;  // guards what follows
  tune::Agreement agreement_;
  std::atomic<uint64_t> settled_{0};  // the agreement's count; read without mutex_
  std::vector<tune::Learnt> known_;   // when the communicator was made
  std::deque<Timed> timed_;
  std::map<TrialId, Phases> phases_;
  uint64_t n_set_ = 0;  // by `set`
  bool finished_ = false;
};

}  // namespace hetccl::comm
