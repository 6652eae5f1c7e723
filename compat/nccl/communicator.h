// One communicator of the program: how it is made, and which library serves it from then on.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/cancel.h"
#include "nccl/handles.h"
#include "nccl/meeting.h"
#include "nccl/outcome.h"

namespace hetccl::nccl {

/// A caller's ncclConfig_t, copied with its texts. Any version's: it is given on as it came.
class Settings {
 public:
  /// Null stands for none. InvalidArgument where it is no config.
  static Result<Settings> copy(const ncclConfig_t* config);
  [[nodiscard]] bool blocking() const { return blocking_; }
  /// As the vendor's library takes it, valid as long as this; null: none.
  [[nodiscard]] ncclConfig_t* config();

 private:
  Bytes bytes_;
  std::string net_name_, comm_name_;
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

/// Thread-safe: set_up, split and shrink run one after the other.
class Communicator : public std::enable_shared_from_this<Communicator> {
 public:
  struct Request {
    ncclUniqueId id;
    int n_ranks, rank;
    Settings settings;
  };
  /// Of the thread that creates it.
  static Result<std::shared_ptr<Communicator>> create();
  ~Communicator();

  /// Meets the others and makes the communicator that serves `handle` from then on. Blocks; its
  /// outcome is kept.
  Outcome set_up(Handle& handle, Request request);
  /// Instead of `set_up`, where nobody can be met: returns `outcome`.
  Outcome fail(Handle& handle, Outcome outcome);
  /// Of `set_up`: in progress until it has returned.
  [[nodiscard]] Outcome outcome() const;
  /// Of `set_up`'s request, once that has returned.
  [[nodiscard]] const Settings& settings() const { return settings_; }

  /// As ncclCommFinalize, of a mixed communicator.
  Outcome finalize();
  /// As ncclCommDestroy, once it is made.
  Outcome destroy();
  /// Ends what waits in it, from any thread and at any time, and what serves it.
  Outcome abort();
  /// What a split or shrink of a mixed communicator asks for. Blocks.
  Result<std::optional<Meeting::Part>> split(int color, int key);
  Result<Meeting::Part> shrink(std::span<const int> excluded);
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
  Outcome make_mixed(const Request& request);
  void settle(Handle& handle, const Outcome& outcome);

  const CurrentDevice device_ = CurrentDevice::of_this_thread();
  std::unique_ptr<Cancel> cancel_;
  std::mutex meets_;  // one exchange at a time
  std::unique_ptr<Meeting> meeting_;
  Settings settings_;
  // What the libraries have made: read by `abort` while they still make it.
  ncclComm_t vendor_ = nullptr;
  std::atomic<hetcclComm_t> mixed_{nullptr};

  mutable std::mutex mutex_;  // guards what follows
  bool aborted_ = false;
  std::string ranks_;
  Outcome outcome_{ncclInProgress, ""};
};

}  // namespace hetccl::nccl
