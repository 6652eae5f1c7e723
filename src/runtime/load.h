// Finds a vendor's runtime and keeps its table, one per platform and process.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "runtime/table.h"

namespace hetccl::runtime {

/// The arguments of hetcclRuntimeLoad; settings fill in what they leave open.
struct Request {
  std::string_view platform;     ///< "cuda", "hip"; empty: found automatically
  std::string_view path;         ///< of the library; empty: the usual names
  std::string_view hip_library;  ///< HETCCL_HIP_LIBRARY
};

/// Returns the table of the requested platform. Thread-safe. Unsupported: no such library, with the
/// names tried, or HIP before 6. InvalidArgument: no such platform, or a path without a platform.
/// InvalidUsage: the platform's table is already of another library.
Result<const hetcclRuntime*> load(const Request& request, const OwnEntries& own);

/// Returns bit 1 << platform for each platform whose library can be loaded and shows a device.
/// Called libraries stay loaded. Thread-safe.
unsigned available(std::string_view hip_library, const OwnEntries& own);

/// Returns the Table of a public table; null if `load` did not make it. Thread-safe.
const Table* find(const hetcclRuntime* table);

/// A platform to try in an automatic choice.
struct Candidate {
  std::string_view title;  ///< "CUDA", for errors
  bool loaded = false;     ///< the process has already loaded its library
  std::function<Result<const hetcclRuntime*>()> load;
};

/// Returns the first that shows a device, loaded ones first, or Unsupported with each one's reason.
Result<const hetcclRuntime*> choose(std::span<const Candidate> candidates);

}  // namespace hetccl::runtime
