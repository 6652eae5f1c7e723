// One communicator of the program: sets it up, and knows which library serves it from then on.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/cancel.h"
#include "nccl/handles.h"
#include "nccl/meeting.h"
#include "nccl/outcome.h"

namespace hetccl::nccl {

/// A copy of a caller's ncclConfig_t, of any version, and of its texts.
class ConfigCopy {
 public:
  /// Copies `config`; null means that there is none. InvalidArgument if it is not a valid config.
  /// NCCL_COMM_BLOCKING overrides the config, as in NCCL.
  static Result<ConfigCopy> of(const ncclConfig_t* config);
  [[nodiscard]] bool blocking() const { return blocking_; }
  /// Returns the config for the vendor's library, valid as long as this object; null: none.
  [[nodiscard]] ncclConfig_t* get();

 private:
  Bytes bytes_;
  const char *net_name_ = nullptr, *comm_name_ = nullptr;  // kept until the process ends
  bool blocking_ = true;
};

/// The GPU that is current when a communicator is created, for the thread that sets it up.
class CurrentDevice {
 public:
  static CurrentDevice of_this_thread();
  void make_current() const;
  /// Its number in this process; -1: none.
  [[nodiscard]] int number() const { return number_; }

 private:
  void* context_ = nullptr;
  int number_ = -1;
};

/// The order in which this rank calls splits and shrinks of a communicator, the same on all ranks.
/// Threads that carry them out wait for their turn. Thread-safe.
class SplitOrder {
 public:
  /// The turn of one call, taken in the calling thread. It ends with `end`, or on destruction, even
  /// if nobody has waited for it.
  class Turn {
   public:
    Turn(SplitOrder& order, uint64_t number) : order_(order), number_(number) {}
    ~Turn() { end(); }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    void wait();
    void end();

   private:
    SplitOrder& order_;
    const uint64_t number_;
    bool is_over_ = false;
  };
  /// The turn must not outlive this object.
  std::unique_ptr<Turn> take();

 private:
  std::mutex mutex_;  // guards the members below
  std::condition_variable over_;
  uint64_t taken_ = 0, first_ = 0;  // number of the first turn that is not over
  std::set<uint64_t> early_;        // turns after first_ that are over
};

/// Thread-safe.
class Communicator : public std::enable_shared_from_this<Communicator> {
 public:
  struct Request {
    ncclUniqueId id;
    int n_ranks, rank;
    ConfigCopy config;
  };
  /// Creates a communicator for the calling thread's GPU.
  static Result<std::shared_ptr<Communicator>> create();
  ~Communicator();

  /// Meets the other ranks and makes the communicator that serves `handle` from then on. Blocks.
  /// Keeps the outcome.
  Outcome set_up(Handle& handle, Request request);
  /// Keeps and returns the outcome. Called at the end of `set_up`, or instead of it.
  Outcome conclude(Handle& handle, Outcome outcome);
  /// The outcome of `set_up`; in progress until it has returned.
  [[nodiscard]] Outcome outcome() const;
  /// The config of `set_up`'s request; valid once `set_up` has returned.
  [[nodiscard]] const ConfigCopy& config() const { return config_; }

  /// ncclCommFinalize of a mixed communicator.
  Outcome finalize();
  /// ncclCommDestroy of a communicator that is set up.
  Outcome destroy();
  /// Aborts the communicator and everything that waits in it. Any thread may call it at any time.
  Outcome abort();
  /// Takes the turn of a split or shrink of a mixed communicator, in the calling thread.
  std::shared_ptr<SplitOrder::Turn> take_turn();
  /// Carry out a split or shrink. They block.
  Result<std::optional<Meeting::Child>> split(SplitOrder::Turn& turn, int color, int key);
  Result<Meeting::Child> shrink(SplitOrder::Turn& turn, std::span<const int> excluded);
  /// The GPU that was current when the communicator was created.
  [[nodiscard]] const CurrentDevice& device() const { return device_; }
  /// "nccl: 2, no GPU library: 1"; "" before the ranks have met.
  [[nodiscard]] std::string describe() const;

 private:
  Communicator() = default;
  template <typename Id>
  Status share(Id& id, const Outcome& made);
  Outcome wait_for_mixed();
  Outcome make(Request& request);
  Outcome make_vendors(const Request& request);
  Outcome init_vendors(const ncclUniqueId& id, const Request& request);
  Outcome make_mixed(const Request& request);

  const CurrentDevice device_ = CurrentDevice::of_this_thread();
  std::unique_ptr<Cancel> cancel_;
  SplitOrder split_order_;
  std::unique_ptr<Meeting> meeting_;
  ConfigCopy config_;
  std::atomic<ncclComm_t> vendor_{nullptr};
  std::atomic<hetcclComm_t> mixed_{nullptr};

  mutable std::mutex mutex_;  // guards the members below
  bool aborted_ = false;
  std::string ranks_;
  Outcome outcome_{ncclInProgress, ""};
};

}  // namespace hetccl::nccl
