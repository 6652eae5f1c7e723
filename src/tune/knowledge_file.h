// HETCCL_TUNE_FILE: results in a file that jobs share.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tune/knowledge.h"

namespace hetccl::tune {

/// If the file cannot be read or written, this warns and the job continues. Thread-safe if `warn`
/// is.
class KnowledgeFile {
 public:
  /// `path` may be empty: no file. `warn` takes a log line.
  KnowledgeFile(std::string path, std::function<void(const std::string&)> warn);

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] Knowledge read() const;
  /// Merges `learnt` with what other jobs have written meanwhile. Leaves the file of another
  /// version as it is. Renames a file that is not in this format to `path`.damaged.
  void add(const Fingerprint& fingerprint, const std::vector<Learnt>& learnt) const;

 private:
  [[nodiscard]] Result<Knowledge> keep_damaged(std::string_view text, const Status& why) const;

  const std::string path_;
  const std::function<void(const std::string&)> warn_;
};

}  // namespace hetccl::tune
