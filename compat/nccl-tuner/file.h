// HETCCL_TUNE_FILE, for plain NCCL programs: read once in a process, written where a search has
// found something.
#pragma once

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "nccl-tuner/log.h"
#include "tune/knowledge_file.h"

namespace hetccl::nccl_tuner {

/// Reads the file once in a process; later calls return the same. Ranks of one communicator must
/// not choose by different states of it. Thread-safe.
const tune::Knowledge& read_once(const std::string& path, const NcclLog& log);

/// The entries of NCCL's communicators, as the text of a file, for rank 0 to tell the other ranks.
/// Empty where it would have more than `most` bytes, which is logged.
std::string text_for_all(const tune::Knowledge& knowledge, size_t most, const NcclLog& log);

/// For communicators of one fingerprint.
class TuneFile {
 public:
  /// `path` may be empty: then there is no file.
  TuneFile(std::string path, tune::Fingerprint fingerprint, NcclLog log);
  ~TuneFile();
  TuneFile(const TuneFile&) = delete;
  TuneFile& operator=(const TuneFile&) = delete;

  void add(const std::vector<tune::Learnt>& learnt) const { file_.add(fingerprint_, learnt); }
  /// The same on a thread of its own, unless one still writes.
  void start_adding(std::vector<tune::Learnt> learnt);

 private:
  const tune::KnowledgeFile file_;
  const tune::Fingerprint fingerprint_;
  std::thread writer_;
  std::atomic<bool> writes_ = false;
};

}  // namespace hetccl::nccl_tuner
