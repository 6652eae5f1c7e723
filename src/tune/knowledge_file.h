// HETCCL_TUNE_FILE: knowledge in a file that jobs share.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tune/knowledge.h"

namespace hetccl::tune {

/// A file that cannot be read or written is reported, and nothing else suffers. Thread-safe where
/// `warn` is.
class KnowledgeFile {
 public:
  /// `path` may be empty: then there is no file. `warn` takes a line of log.
  KnowledgeFile(std::string path, std::function<void(const std::string&)> warn);

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] Knowledge read() const;
  /// Merges it with what others have written meanwhile. What another version has written stays as
  /// it is; what is no such file is kept beside it, as `path`.damaged.
  void add(const Fingerprint& fingerprint, const std::vector<Learnt>& learnt) const;

 private:
  [[nodiscard]] Result<Knowledge> keep_damaged(std::string_view text, const Status& why) const;

  const std::string path_;
  const std::function<void(const std::string&)> warn_;
};

}  // namespace hetccl::tune
