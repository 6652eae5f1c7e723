/// Ranks meet by waiting for each other's keys in the torch Store.
#pragma once

#include <chrono>
#include <functional>
#include <initializer_list>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

namespace hetccl::torch_backend {

/// A rank of a process group, for error messages.
struct GroupRank {
  int rank = 0, size = 0;
  const std::string& group;
};

/// Deletes keys that nobody reads any more, if the Store can delete.
void forget(c10d::Store& store, std::initializer_list<std::string> keys) noexcept;

/// Returns ": ranks 1, 3 of 4 have not come", naming the ranks whose keys are missing in the Store.
/// Empty if none is missing or the Store cannot tell.
[[nodiscard]] std::string name_missing(c10d::Store& store, int size,
                                       const std::function<std::string(int rank)>& key_of);

/// One rank's wait for the others, with one deadline. Warns every 10 s. `Missing` names the missing
/// ranks, as `name_missing` does.
class Patience {
 public:
  using Milliseconds = std::chrono::milliseconds;
  using Missing = std::function<std::string()>;

  /// `purpose`: the action that missing ranks have yet to take.
  Patience(c10d::Store& store, const GroupRank& self, const char* purpose, Milliseconds timeout);

  /// Waits at most `longest` for `keys`; returns whether they exist. Throws DistBackendError at the
  /// deadline, and if the Store fails.
  bool wait_for(const std::vector<std::string>& keys, Milliseconds longest, const Missing& missing);
  /// Sleeps for `pause`. Throws at the deadline.
  void rest(Milliseconds pause, const Missing& missing);

 private:
  using Clock = std::chrono::steady_clock;
  void look(bool store_failed, const char* store_says, const Missing& missing);

  c10d::Store& store_;
  const GroupRank self_;
  const char* const purpose_;
  const Milliseconds timeout_;
  const Clock::time_point begin_;
  Clock::time_point next_reminder_;
};

/// A name in the Store under which all ranks of one attempt meet once. No other attempt uses the
/// same name.
class Meeting {
 public:
  Meeting(c10d::Store& store, std::string name, const GroupRank& self);

  /// Blocks until all ranks have come. Throws as Patience does; this rank then counts as absent.
  /// Returns false if `is_over()`, which it calls from time to time, returns true because not all
  /// ranks will come. No rank can meet here afterwards.
  bool meet(Patience& patience, const std::function<bool()>& is_over = {});

 private:
  [[nodiscard]] std::string key_of(int rank) const;
  bool await_all(Patience& patience, const std::function<bool()>& is_over);
  bool leave();

  c10d::Store& store_;
  const std::string name_;
  const GroupRank self_;
};

}  // namespace hetccl::torch_backend
