// A library that is loaded, and the table of its functions.
#pragma once

#include <memory>
#include <string>

#include "base/dynlib.h"
#include "runtime/vendor.h"

namespace hetccl::runtime {

/// The entries that hetccl answers itself, and which return codes of its C API: that makes them.
struct OwnEntries {
  decltype(hetcclRuntime::get_available_platforms) get_available_platforms = nullptr;
  decltype(hetcclRuntime::set_platform) set_platform = nullptr;
  decltype(hetcclRuntime::set_platform_auto) set_platform_auto = nullptr;
};

/// The name of each entry in the library; null where the vendor has none.
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

/// The table of a library of this vendor, of which a process makes one. Calls the library, which
/// then stays loaded. Unsupported: it is none, or HIP before 6.
template <typename Vendor>
Result<std::unique_ptr<Table>> make_table(DynLib library, const OwnEntries& own);

}  // namespace hetccl::runtime
