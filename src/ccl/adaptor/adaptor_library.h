// Libraries of clusters of hosts that are found at run time: adaptors (hetccl/adaptor.h).
#pragma once

#include <memory>
#include <string>

#include "base/dynlib.h"
#include "ccl/ccl.h"
#include "hetccl/adaptor.h"

namespace hetccl::ccl {

/// An adaptor that has been loaded and checked. Immutable; it stays in the process.
class Adaptor {
 public:
  /// Unsupported with the reason: it cannot be loaded, has no entry, is of another ABI, or its
  /// table is wrong.
  static Result<std::shared_ptr<const Adaptor>> load(const std::string& path);
  /// The same of a table in this process, of which errors say that it is `path`'s.
  static Result<std::shared_ptr<const Adaptor>> check(const hetcclAdaptorTable* table,
                                                      const std::string& path);
  [[nodiscard]] const hetcclLibraryAdaptor& library() const { return library_; }
  [[nodiscard]] const std::string& path() const { return path_; }
  /// 0: it cannot serve this process.
  [[nodiscard]] int score() const { return score_; }

 private:
  hetcclLibraryAdaptor library_{};
  std::string path_;
  int score_ = 0;
};

/// Streams are `TaskQueue*`, as those of the host library.
std::unique_ptr<Library> make_adaptor_library(std::shared_ptr<const Adaptor> adaptor);

}  // namespace hetccl::ccl
