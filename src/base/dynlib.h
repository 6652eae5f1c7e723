// A shared library found at run time. Reuses a copy that the process has already loaded
// (RTLD_NOLOAD first).
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace hetccl {

/// Returns the paths of loaded libraries whose file name begins with `name`.
std::vector<std::string> loaded_libraries(std::string_view name);

/// Returns how many libraries the process has loaded in total: `loaded_libraries` finds more only
/// if this grows. Takes a tenth of a microsecond.
uint64_t count_library_loads();

/// Returns the path of the library that contains an address; "" if none does.
std::string library_of(const void* address);

/// Returns the symbol that undefined references of this name resolve to before a library's own
/// dependencies: one of the program, its libraries, or a globally loaded library.
void* global_symbol(const char* name);

class DynLib {
 public:
  /// Tries each name in turn: first as already loaded, then by loading it (RTLD_LOCAL). SystemError
  /// lists what failed.
  static Result<DynLib> open(std::span<const std::string> names);
  DynLib(DynLib&& other) noexcept;
  DynLib& operator=(DynLib&& other) noexcept;
  ~DynLib();

  /// Returns the symbol's address, or null: a missing symbol is a missing capability, not an error.
  [[nodiscard]] void* symbol(const char* name) const;
  /// Returns whether `name` means this library: its path, another path of the file, or its soname.
  [[nodiscard]] bool is_called(const std::string& name) const;
  /// Keeps the library loaded for ever. Call it before the first function of a library that may
  /// start threads: they would otherwise run unmapped code.
  void stay_loaded() { stays_loaded_ = true; }
  /// Returns the loaded path.
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  DynLib(void* handle, std::string path) : handle_(handle), path_(std::move(path)) {}
  void* handle_;
  std::string path_;
  bool stays_loaded_ = false;
};

/// Fills a table of a library's functions, and remembers which are missing.
class Symbols {
 public:
  explicit Symbols(const DynLib& library) : library_(library) {}

  /// `call` is a std::function, or a pointer if each nanosecond counts.
  template <typename Call>
  void find(Call& call, const char* name) {
    optional(call, name);
    if (!call) missing_.append(missing_.empty() ? "" : ", ").append(name);
  }
  template <typename Signature>
  void optional(std::function<Signature>& call, const char* name) {
    if (auto* address = reinterpret_cast<Signature*>(library_.symbol(name))) call = address;
  }
  template <typename Signature>
  void optional(Signature*& call, const char* name) {
    call = reinterpret_cast<Signature*>(library_.symbol(name));
  }
  /// Returns the names that `find` did not find: "cuInit, cuMemAlloc_v2".
  [[nodiscard]] const std::string& missing() const { return missing_; }

 private:
  const DynLib& library_;
  std::string missing_;
};

}  // namespace hetccl
