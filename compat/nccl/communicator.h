// One communicator of the program: how it is made, and which library serves it from then on.
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

/// A caller's ncclConfig_t, copied with its texts. Any version's: it is given on as it came.
class ConfigCopy {
 public:
  /// Null stands for none. InvalidArgument where it is no config. NCCL_COMM_BLOCKING goes before
  /// what it says, as in NCCL.
  static Result<ConfigCopy> of(const ncclConfig_t* config);
  [[nodiscard]] bool blocking() const { return blocking_; }
  /// As the vendor's library takes it, valid as long as this; null: none.
  [[nodiscard]] ncclConfig_t* get();

 private:
  Bytes bytes_;
  const char *net_name_ = nullptr, *comm_name_ = nullptr;  // kept as long as the process
  bool blocking_ = true;
};

/// The GPU that is current where a communicator is made, for the thread that makes it.
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

/// The order in which a rank calls splits and shrinks of one communicator, which all ranks share:
/// threads that carry them out wait for their turn. Thread-safe.
class SplitOrder {
 public:
  /// One call's, taken where it is called. It is over at `end`, or when it is destroyed, waited for
  /// or not.
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
  /// Does not outlive `this`.
  std::unique_ptr<Turn> take();

 private:
  std::mutex mutex_;  // guards what follows
  std::condition_variable over_;
  uint64_t taken_ = 0, first_ = 0;  // the first that is not over
  std::set<uint64_t> early_;        // over before it
};

/// Thread-safe.
class Communicator : public std::enable_shared_from_this<Communicator> {
 public:
  struct Request {
    ncclUniqueId id;
    int n_ranks, rank;
    ConfigCopy config;
  };
  /// Its GPU is the calling thread's.
  static Result<std::shared_ptr<Communicator>> create();
  ~Communicator();

  /// Meets the others and makes the communicator that serves `handle` from then on. Blocks; its
  /// outcome is kept.
  Outcome set_up(Handle& handle, Request request);
  /// Keeps the outcome, and returns it: the end of `set_up`, or instead of it.
  Outcome conclude(Handle& handle, Outcome outcome);
  /// Of `set_up`: in progress until it has returned.
  [[nodiscard]] Outcome outcome() const;
  /// Of `set_up`'s request, once that has returned.
  [[nodiscard]] const ConfigCopy& config() const { return config_; }

  /// As ncclCommFinalize, of a mixed communicator.
  Outcome finalize();
  /// As ncclCommDestroy, once it is made.
  Outcome destroy();
  /// Ends what waits in it, from any thread and at any time, and what serves it.
  Outcome abort();
  /// Takes the turn of a split or shrink of a mixed communicator, in the thread that calls it.
  std::shared_ptr<SplitOrder::Turn> take_turn();
  /// Carry a split or shrink out. They block.
  Result<std::optional<Meeting::Child>> split(SplitOrder::Turn& turn, int color, int key);
  Result<Meeting::Child> shrink(SplitOrder::Turn& turn, std::span<const int> excluded);
  /// The GPU that was current where it was created, and is its own.
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

  mutable std::mutex mutex_;  // guards what follows
  bool aborted_ = false;
  std::string ranks_;
  Outcome outcome_{ncclInProgress, ""};
};

}  // namespace hetccl::nccl
