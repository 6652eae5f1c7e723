// Adaptors: shared libraries found at run time that offer the parts of hetccl/adaptor.h. This room
// loads them and checks their tables; each seam's folder drives its kind of part.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/status.h"
#include "hetccl/adaptor.h"

namespace hetccl::adaptor {

/// An adaptor's part of one kind. `calls` is as long as this hetccl's; members that the adaptor was
/// compiled without are null. Its strings are copied to `name` and `version`.
template <typename Calls>
struct Part {
  Calls calls{};
  std::string name, version;
};

/// An adaptor that is loaded and checked. It has at least one part, and stays in the process.
struct Adaptor {
  std::string path;
  std::optional<Part<hetcclLibraryAdaptor>> library;
  std::optional<Part<hetcclDeviceAdaptor>> device;
  std::optional<Part<hetcclTransportAdaptor>> transport;
  /// Returns whether it has a library, and this is for hosts.
  [[nodiscard]] bool serves_hosts() const { return library && library->calls.device == nullptr; }
};

/// Names of hetccl's own parts, which adaptors may not take.
using Names = std::set<std::string>;

/// Returns Unsupported with the reason if it cannot be loaded, has no entry, has another ABI, or
/// has a defective table.
Result<std::shared_ptr<const Adaptor>> load(const std::string& path, const Names& taken);
/// Checks a table of this process. Errors name `path`.
Result<std::shared_ptr<const Adaptor>> check(const hetcclAdaptorTable* table,
                                             const std::string& path, const Names& taken);

/// An adaptor named in HETCCL_ADAPTORS, or the reason why it cannot be used.
struct Found {
  std::string path;
  Result<std::shared_ptr<const Adaptor>> adaptor;
};
/// Loads all adaptors in `paths`, which colons separate.
std::vector<Found> find(const std::string& paths, const Names& taken);

}  // namespace hetccl::adaptor
