// A shared library found at run time. A copy that the process has loaded already is reused
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

/// Paths of the libraries in this process whose file name begins with `name`.
std::vector<std::string> loaded_libraries(std::string_view name);

/// How many libraries the process has loaded in all: what `loaded_libraries` finds can only grow
/// when this does. Costs a tenth of a microsecond.
uint64_t count_library_loads();

/// The path of the library that an address lies in; "" where it is in none.
std::string library_of(const void* address);

/// The symbol that every library's undefined reference of this name goes to before the library's
/// own dependencies are searched: that of the program, its libraries, or one loaded globally.
void* global_symbol(const char* name);

class DynLib {
 public:
  /// Tries each name in turn: first as already loaded, then by loading it (RTLD_LOCAL). SystemError
  /// lists what failed.
  static Result<DynLib> open(std::span<const std::string> names);
  DynLib(DynLib&& other) noexcept;
  DynLib& operator=(DynLib&& other) noexcept;
  ~DynLib();

  /// The symbol's address, or null: a missing symbol is a missing capability, not an error.
  [[nodiscard]] void* symbol(const char* name) const;
  /// Whether `name` stands for this library: its path, another path of the file, or its soname.
  [[nodiscard]] bool is_called(const std::string& name) const;
  /// The destructor unloads nothing from here on. Call it before the first function of a library
  /// that may start threads of its own: these would run code that is no longer mapped.
  void stay_loaded() { stays_loaded_ = true; }
  /// The path that was loaded.
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  DynLib(void* handle, std::string path) : handle_(handle), path_(std::move(path)) {}
  void* handle_;
  std::string path_;
  bool stays_loaded_ = false;
};

/// Fills a table of a library's functions, and remembers which it lacks.
class Symbols {
 public:
  explicit Symbols(const DynLib& library) : library_(library) {}

  /// `call` is a std::function, or a pointer where each nanosecond counts.
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
  /// What `find` has not found: "cuInit, cuMemAlloc_v2".
  [[nodiscard]] const std::string& missing() const { return missing_; }

 private:
  const DynLib& library_;
  std::string missing_;
};

}  // namespace hetccl
