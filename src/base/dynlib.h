// A shared library found at run time. A copy that the process has loaded already is reused
// (RTLD_NOLOAD first).
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace hetccl {

/// Paths of the libraries in this process whose file name begins with `name`.
std::vector<std::string> loaded_libraries(std::string_view name);

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
  /// The path that was loaded.
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  DynLib(void* handle, std::string path) : handle_(handle), path_(std::move(path)) {}
  void* handle_;
  std::string path_;
};

}  // namespace hetccl
