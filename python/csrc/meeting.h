/// How ranks wait for each other in the torch Store.
#pragma once

#include <chrono>
#include <functional>
#include <initializer_list>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

namespace hetccl::torch_backend {

/// A rank of a process group, as errors name it.
struct GroupRank {
  int rank = 0, size = 0;
  const std::string& group;
};

/// Deletes keys that nobody reads any more. A Store that cannot delete keeps them.
void forget(c10d::Store& store, std::initializer_list<std::string> keys) noexcept;

/// ": ranks 1, 3 of 4 have not come", of the ranks whose key the Store lacks. Empty if it lacks
/// none or cannot tell.
[[nodiscard]] std::string name_missing(c10d::Store& store, int size,
                                       const std::function<std::string(int rank)>& key_of);

/// One rank's wait for the others, with one deadline. Warns every 10 s. `Missing` names the ranks
/// that have not come, as `name_missing` does.
class Patience {
 public:
  using Milliseconds = std::chrono::milliseconds;
  using Missing = std::function<std::string()>;

  /// `purpose`: what a missing rank has yet to do.
  Patience(c10d::Store& store, const GroupRank& self, const char* purpose, Milliseconds timeout);

  /// Waits for `keys`, at most `longest`: whether they are there. Throws DistBackendError at the
  /// deadline, and if the Store fails.
  bool wait_for(const std::vector<std::string>& keys, Milliseconds longest, const Missing& missing);
  /// Sleeps. Throws at the deadline.
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

/// A place in the Store where all ranks of one attempt meet once: no other attempt has its name.
class Meeting {
 public:
  Meeting(c10d::Store& store, std::string name, const GroupRank& self);

  /// Blocks until all ranks have come. Throws as Patience; this rank counts as absent then.
  /// Returns false if `is_over()`, which is asked now and then, says that not all will come. No
  /// rank meets here any more then.
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
