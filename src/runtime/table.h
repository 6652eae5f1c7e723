// A loaded library, and the table of its functions.
#pragma once

#include <memory>
#include <string>

#include "base/dynlib.h"
#include "runtime/vendor.h"

namespace hetccl::runtime {

/// The entries that hetccl answers itself. The C API makes them, because they return its codes.
struct OwnEntries {
  decltype(hetcclRuntime::get_available_platforms) get_available_platforms = nullptr;
  decltype(hetcclRuntime::set_platform) set_platform = nullptr;
  decltype(hetcclRuntime::set_platform_auto) set_platform_auto = nullptr;
};

/// The name of each entry in the library; null if the vendor has none.
using SymbolNames = std::array<const char*, kEntries.size()>;

struct Table {
  Table(DynLib loaded, const SymbolNames& names) : library(std::move(loaded)), symbols(names) {}
  Table(const Table&) = delete;
  Table& operator=(const Table&) = delete;

  hetcclRuntime entries{};
  DynLib library;
  SymbolNames symbols;
  std::array<bool, kEntries.size()> available{};
  std::string version_text, missing;
};

/// Makes the table of a vendor's library, once per process. Calls the library, which then stays
/// loaded. Returns Unsupported if it is no such library, or HIP before 6.
template <typename Vendor>
Result<std::unique_ptr<Table>> make_table(DynLib library, const OwnEntries& own);

}  // namespace hetccl::runtime
