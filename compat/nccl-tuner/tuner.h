// The plug-in's part of one NCCL communicator on one rank.
#pragma once

#include <map>
#include <memory>
#include <mutex>

#include "nccl-tuner/calls.h"
#include "nccl-tuner/costs.h"
#include "nccl-tuner/file.h"
#include "nccl-tuner/online.h"

namespace hetccl::nccl_tuner {

/// What NCCL tells when it makes a communicator.
struct Communicator {
  uint64_t id = 0;  ///< alike on all its ranks; 0 where NCCL does not tell (v2 to v4)
  uint64_t n_ranks = 1, n_nodes = 1;
};

/// Thread-safe; calls are made one at a time.
class Tuner {
 public:
  /// Reads the settings, joins the search where the job has one, and takes what all ranks know of
  /// HETCCL_TUNE_FILE: what rank 0 has told when the search began, or with HETCCL_TUNE=frozen and
  /// without a search the file. Whatever is wrong is logged, and NCCL's own choices are used.
  Tuner(const Communicator& communicator, LogFunction log);
  ~Tuner();
  Tuner(const Tuner&) = delete;
  Tuner& operator=(const Tuner&) = delete;

  /// How the next call runs; zeros where that is NCCL's to choose. Takes less than a microsecond
  /// where nothing is searched. Never throws: an error is logged, and ends the tuning here.
  plan::Resources choose(int function, uint64_t bytes, const Costs& costs) noexcept;

 private:
  Status start();
  Status join(const Config& config, int rank, bool is_first);
  void know(const tune::Knowledge& knowledge, const char* from);
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
