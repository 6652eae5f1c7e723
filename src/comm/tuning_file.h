// HETCCL_TUNE_FILE: what earlier jobs have learnt, read when a communicator is made and written
// while it runs, by rank 0 alone.
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
  /// For communicators of that topology whose libraries can be told that; the log outlives it.
  TuningFile(const Config& config, const topology::Topology& topology, const Tactics& tactics,
             const Log& log);

  [[nodiscard]] const std::string& path() const { return file_.path(); }
  /// Under which this job's results stand.
  [[nodiscard]] const tune::Fingerprint& fingerprint() const {
    return steps_ ? by_step_ : by_call_;
  }
  /// The newest first, but for those that made steps short, which come before others.
  [[nodiscard]] std::vector<tune::Learnt> read() const;
  void add(const std::vector<tune::Learnt>& learnt) const { file_.add(fingerprint(), learnt); }

 private:
  const tune::KnowledgeFile file_;
  const tune::Fingerprint by_call_, by_step_;  // by what was made fast
  const bool steps_, frozen_;
};

}  // namespace hetccl::comm
