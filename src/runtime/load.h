// Finds the runtime of a vendor and keeps its table, one per platform and process.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "runtime/table.h"

namespace hetccl::runtime {

/// What hetcclRuntimeLoad is asked for, with the settings that hold where it does not say.
struct Request {
  std::string_view platform;     ///< "cuda", "hip"; empty: found automatically
  std::string_view path;         ///< of the library; empty: the usual names
  std::string_view hip_library;  ///< HETCCL_HIP_LIBRARY
};

/// The table of the platform asked for. Thread-safe. Unsupported: no such library, with what was
/// tried, or HIP before 6. InvalidArgument: no such platform, or a path without one. InvalidUsage:
/// the platform's table is of another library.
Result<const hetcclRuntime*> load(const Request& request, const OwnEntries& own);

/// Bit 1 << platform of each whose library can be loaded and shows a device. Libraries that were
/// called stay loaded. Thread-safe.
unsigned available(std::string_view hip_library, const OwnEntries& own);

/// What stands behind a table; null if it is none of `load`'s. Thread-safe.
const Table* find(const hetcclRuntime* table);

/// One platform, where it is to be found automatically.
struct Candidate {
  std::string_view title;  ///< "CUDA", for errors
  bool loaded = false;     ///< the process has its library already
  std::function<Result<const hetcclRuntime*>()> load;
};

/// The first that shows a device, loaded ones first. Unsupported, with each one's reason: none.
Result<const hetcclRuntime*> choose(std::span<const Candidate> candidates);

}  // namespace hetccl::runtime
