// HETCCL_TUNE_FILE, for plain NCCL programs: read when a communicator is made, written where a
// search has found something.
#pragma once

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "nccl-tuner/log.h"
#include "tune/knowledge_file.h"

namespace hetccl::nccl_tuner {

/// For communicators of one place.
class TuneFile {
 public:
  /// `path` may be empty: then there is no file.
  TuneFile(std::string path, tune::Place place, NcclLog log);
  ~TuneFile();
  TuneFile(const TuneFile&) = delete;
  TuneFile& operator=(const TuneFile&) = delete;

  [[nodiscard]] std::vector<tune::Learnt> read() const { return file_.read().find(place_); }
  void add(const std::vector<tune::Learnt>& learnt) const { file_.add(place_, learnt); }
  /// The same on a thread of its own, unless one still writes.
  void start_adding(std::vector<tune::Learnt> learnt);

 private:
  const tune::KnowledgeFile file_;
  const tune::Place place_;
  std::thread writer_;
  std::atomic<bool> writes_ = false;
};

}  // namespace hetccl::nccl_tuner
