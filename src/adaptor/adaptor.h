// Adaptors: shared libraries that are found at run time and offer what hetccl/adaptor.h has. Here
// they are loaded and their tables checked; what drives a part lies in its seam's folder.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/status.h"
#include "hetccl/adaptor.h"

namespace hetccl::adaptor {

/// What an adaptor offers of one kind. `calls` is as long as this hetccl's; what the adaptor was
/// compiled without is null. The strings in it are copied: `name` and `version` are they.
template <typename Calls>
struct Part {
  Calls calls{};
  std::string name, version;
};

/// An adaptor that has been loaded and checked: it has at least one part. It stays in the process.
struct Adaptor {
  std::string path;
  std::optional<Part<hetcclLibraryAdaptor>> library;
  std::optional<Part<hetcclDeviceAdaptor>> device;
  std::optional<Part<hetcclTransportAdaptor>> transport;
  /// A library of hosts, of all that it may be.
  [[nodiscard]] bool serves_hosts() const { return library && library->calls.device == nullptr; }
};

/// Names that hetccl's own parts have, which an adaptor's may not take.
using Names = std::set<std::string>;

/// Unsupported with the reason: it cannot be loaded, has no entry, is of another ABI, or its table
/// is wrong.
Result<std::shared_ptr<const Adaptor>> load(const std::string& path, const Names& taken);
/// The same of a table in this process, of which errors say that it is `path`'s.
Result<std::shared_ptr<const Adaptor>> check(const hetcclAdaptorTable* table,
                                             const std::string& path, const Names& taken);

/// An adaptor that HETCCL_ADAPTORS names: it, or why it is none.
struct Found {
  std::string path;
  Result<std::shared_ptr<const Adaptor>> adaptor;
};
/// All that `paths`, with colons between them, name.
std::vector<Found> find(const std::string& paths, const Names& taken);

}  // namespace hetccl::adaptor
