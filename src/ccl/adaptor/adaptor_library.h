// Libraries of clusters of hosts that are found at run time: adaptors (hetccl/adaptor.h).
#pragma once

#include <memory>
#include <string>

#include "base/dynlib.h"
#include "ccl/ccl.h"
#include "hetccl/adaptor.h"

namespace hetccl::ccl {

/// An adaptor that has been loaded and checked. Immutable; it stays in the process. None of its
/// calls that may wait for other ranks can hold up the caller beyond a limit.
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
  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] const std::string& version() const { return version_; }
  /// 0: it cannot serve this process. To be asked once.
  [[nodiscard]] Result<int> score(const WaitLimit& limit) const;

 private:
  hetcclLibraryAdaptor library_{};
  std::string path_, name_, version_;
};

/// Streams are `TaskQueue*`, as those of the host library.
std::unique_ptr<Library> make_adaptor_library(std::shared_ptr<const Adaptor> adaptor);

}  // namespace hetccl::ccl
