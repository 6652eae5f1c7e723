// HETCCL_TUNE_FILE: settings that earlier jobs learnt. Rank 0 alone reads the file when a
// communicator is made, and writes it while the communicator runs.
#pragma once

#include <string>
#include <vector>

#include "base/config.h"
#include "base/log.h"
#include "tune/knowledge_file.h"

namespace hetccl::comm {

/// Immutable.
class TuningFile {
 public:
  /// Serves communicators of `topology` whose libraries accept `tactics`. The log must outlive it.
  TuningFile(const Config& config, const topology::Topology& topology, const Tactics& tactics,
             const Log& log);

  [[nodiscard]] const std::string& path() const { return file_.path(); }
  /// Returns the fingerprint that this job's results are stored under.
  [[nodiscard]] const tune::Fingerprint& fingerprint() const {
    return steps_ ? by_step_ : by_call_;
  }
  /// Returns the newest first, but results that shortened steps before all others.
  [[nodiscard]] std::vector<tune::Learnt> read() const;
  void add(const std::vector<tune::Learnt>& learnt) const { file_.add(fingerprint(), learnt); }

 private:
  const tune::KnowledgeFile file_;
  const tune::Fingerprint by_call_, by_step_;  // one for each goal: short calls, short steps
  const bool steps_, frozen_;
};

}  // namespace hetccl::comm
