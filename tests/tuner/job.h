// Ranks as processes that call the plug-in as NCCL would, a coordinator, and a board on which each
// call's choice is written down.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tuner/fake_caller.h"

namespace hetccl::nccl_tuner {

inline constexpr size_t kJobRanks = 3;
inline constexpr size_t kMostJobCalls = 60'000;

/// In memory that all processes share.
struct Board {
  std::atomic<uint64_t> called[kJobRanks];
  std::atomic<bool> dead[kJobRanks];
  std::atomic<int64_t> longest_us[kJobRanks];  ///< that the plug-in held up a call
  std::atomic<bool> ready[kJobRanks];
  uint32_t chosen[kJobRanks][kMostJobCalls];
  uint32_t later[kJobRanks];  ///< by a second communicator of all ranks, for an all-reduce
};

struct JobOptions {
  uint64_t seed = 1;
  size_t n_calls = 4'000;
  int version = 5;
  std::string budget = "10000";
  std::string tune_file{};
  /// Before each call, in the rank's process.
  std::function<void(size_t rank, size_t call)> before = [](size_t, size_t) {};
  /// A communicator of some ranks that each rank makes before that of all; 0: none.
  size_t n_ranks_before = 0;
  /// Extra environment of a rank, besides the common one.
  std::function<std::map<std::string, std::string>(size_t rank)> environment = [](size_t) {
    return std::map<std::string, std::string>();
  };
};

/// Returns how long a call takes with that choice, in us.
double cost_of(int function, const Chosen& chosen);
Chosen chosen_of(uint32_t written);

/// Runs to its end. No rank outlives 100 s.
class Job {
 public:
  explicit Job(JobOptions options);
  ~Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  void kill_coordinator();
  /// Waits for all ranks; those that have not ended by themselves with status 0.
  std::vector<size_t> finish();
  [[nodiscard]] Board& board() const { return *board_; }
  /// Whether all ranks have chosen alike on their second communicator, and that.
  [[nodiscard]] bool is_later(const Chosen& chosen) const;
  /// The calls that ranks have made with different choices.
  [[nodiscard]] size_t n_different() const;
  [[nodiscard]] static int function_of(size_t call) {
    return call % 2 == 0 ? kAllReduce : kAllGather;
  }

 private:
  std::string start_coordinator();
  void run_rank(size_t rank, const std::string& id);

  const JobOptions options_;
  Board* board_;
  pid_t coordinator_ = -1;
  std::vector<pid_t> ranks_;
};

}  // namespace hetccl::nccl_tuner
