// HETCCL_TUNE_FILE for plain NCCL programs: read once per process, and written after a search has
// found a setting.
#pragma once

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "nccl-tuner/log.h"
#include "tune/knowledge_file.h"

namespace hetccl::nccl_tuner {

/// Reads the file once per process; later calls return the same content, since all ranks of a
/// communicator must choose by the same state. Thread-safe.
const tune::Knowledge& read_once(const std::string& path, const NcclLog& log);

/// The entries for NCCL's communicators, as the text of a file that rank 0 sends to the other
/// ranks. Empty, with a log line, if it would have more than `most` bytes.
std::string text_for_all(const tune::Knowledge& knowledge, size_t most, const NcclLog& log);

/// Entries for communicators with one fingerprint.
class TuneFile {
 public:
  /// With an empty `path` there is no file.
  TuneFile(std::string path, tune::Fingerprint fingerprint, NcclLog log);
  ~TuneFile();
  TuneFile(const TuneFile&) = delete;
  TuneFile& operator=(const TuneFile&) = delete;

  void add(const std::vector<tune::Learnt>& learnt) const { file_.add(fingerprint_, learnt); }
  /// Adds on a thread of its own, unless an earlier one is still writing.
  void start_adding(std::vector<tune::Learnt> learnt);

 private:
  const tune::KnowledgeFile file_;
  const tune::Fingerprint fingerprint_;
  std::thread writer_;
  std::atomic<bool> writes_ = false;
};

}  // namespace hetccl::nccl_tuner
