// Ranks as forked processes over the C API, so that a test can kill and stop them.
#pragma once

#include <stdlib.h>
#include <sys/types.h>

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "hetccl/hetccl.h"

namespace hetccl::process {

/// A rank's report to the test. A rank's function returns it; a killed rank reports nothing.
using Report = std::string;

/// The environment of one rank.
struct Rank {
  int rank = 0;
  int n_ranks = 0;
  hetcclUniqueId id{};
  /// Tells the test that this rank has come so far. At most once.
  std::function<void()> ready;
};

/// Sets variables for ranks that are forked while this lives; then restores the old values.
class Settings {
 public:
  explicit Settings(const std::map<std::string, std::string>& values) {
    for (const auto& [name, value] : values) {
      const char* before = getenv(name.c_str());
      before_[name] = before != nullptr ? std::optional<std::string>(before) : std::nullopt;
      setenv(name.c_str(), value.c_str(), 1);
    }
  }
  ~Settings() {
    for (const auto& [name, value] : before_) {
      if (value)
        setenv(name.c_str(), value->c_str(), 1);
      else
        unsetenv(name.c_str());
    }
  }
  Settings(const Settings&) = delete;
  Settings& operator=(const Settings&) = delete;

 private:
  std::map<std::string, std::optional<std::string>> before_;
};

class ForkedRanks {
 public:
  using Body = std::function<Report(Rank&)>;
  /// Forks `n` ranks; rank 0 makes the unique id. This process must not have used hetccl before.
  ForkedRanks(int n, const Body& body);
  /// Kills the ranks that still run.
  ~ForkedRanks();

  /// Waits until every rank has called `ready`; false after a hang.
  bool wait_ready();
  void send_signal(int rank, int signal);
  /// The rank's report, or "" when it has died or not reported within `limit`.
  Report report(int rank, std::chrono::milliseconds limit);
  /// Waits for the rank's end: true when it exited by itself with status 0.
  bool exited(int rank);

 private:
  struct Child {
    pid_t pid = -1;
    int ready_fd = -1;
    int report_fd = -1;
  };
  std::vector<Child> children_;
};

/// Joins rank `rank.rank` in the cluster `label`; a failure ends the process with a message.
hetcclComm_t join(const Rank& rank, const char* label);

/// Waits until `comm` has failed.
void wait_for_failure(hetcclComm_t comm);

}  // namespace hetccl::process
