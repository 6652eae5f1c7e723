// HETCCL_TUNE_FILE: what earlier jobs have learnt, read when a communicator is made and written
// while it runs, by rank 0 alone.
#pragma once

#include <string>
#include <vector>

#include "base/config.h"
#include "base/log.h"
#include "tune/knowledge.h"

namespace hetccl::comm {

/// A file that cannot be read or written is reported, and nothing else suffers. Immutable.
class TuningFile {
 public:
  /// For communicators of that topology; the log outlives it.
  TuningFile(const Config& config, const topology::Topology& topology, const Log& log);

  [[nodiscard]] const std::string& path() const { return path_; }
  /// Under which this job's results stand.
  [[nodiscard]] const tune::Place& place() const { return steps_ ? by_step_ : by_call_; }
  [[nodiscard]] std::vector<tune::Learnt> read() const;
  /// Merges it with what others have written meanwhile.
  void add(const std::vector<tune::Learnt>& learnt) const;

 private:
  const std::string path_;  // empty: there is none
  const Log& log_;
  const tune::Place by_call_, by_step_;  // by what was made fast
  const bool steps_, frozen_;
};

}  // namespace hetccl::comm
