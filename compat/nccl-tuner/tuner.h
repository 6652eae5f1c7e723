// The plug-in's state for one NCCL communicator on one rank.
#pragma once

#include <map>
#include <memory>
#include <mutex>

#include "nccl-tuner/calls.h"
#include "nccl-tuner/costs.h"
#include "nccl-tuner/file.h"
#include "nccl-tuner/online.h"

namespace hetccl::nccl_tuner {

/// Facts that NCCL passes when it makes a communicator.
struct Communicator {
  uint64_t id = 0;  ///< the same on all its ranks; 0 if NCCL does not pass it (v2 to v4)
  uint64_t n_ranks = 1, n_nodes = 1;
};

/// Thread-safe; calls are made one at a time.
class Tuner {
 public:
  /// Reads the settings and joins the search if the job has one. Takes the settings of
  /// HETCCL_TUNE_FILE: those that the ranks have agreed on, or, with HETCCL_TUNE=frozen and without
  /// a search, the file's. Logs any error and uses NCCL's own choices.
  Tuner(const Communicator& communicator, LogFunction log);
  ~Tuner();
  Tuner(const Tuner&) = delete;
  Tuner& operator=(const Tuner&) = delete;

  /// Returns the resources of the next call; zeros: NCCL chooses. Takes less than a microsecond
  /// without a search. Never throws: logs an error and stops tuning here.
  plan::Resources choose(int function, uint64_t bytes, const Costs& costs) noexcept;

 private:
  Status start();
  Status join(const Config& config, int rank, bool is_first);
  void add_learnt(const tune::Knowledge& knowledge, const char* from);
  plan::Resources look_up(int function, uint64_t bytes, const Costs& costs);
  void stop(const char* why) noexcept;

  const Communicator communicator_;
  const NcclLog log_;
  bool active_ = true;
  bool keeps_bits_ = false;  // HETCCL_TUNE_BITS
  std::map<tune::Key, plan::Resources> known_;
  std::unique_ptr<TuneFile> file_;
  std::unique_ptr<Online> online_;
};

}  // namespace hetccl::nccl_tuner
