// The vendor's own NCCL or RCCL, which this library stands in for.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>

#include "base/config.h"
#include "base/dynlib.h"
#include "device/gpu/api.h"

namespace hetccl::nccl {

enum class Symbol : size_t {
#define OWN(name) name,
#define VENDOR(name, words, comm, refused) name,
#include "nccl/symbols.def"
#undef OWN
#undef VENDOR
  Count
};

/// The name of a function in a library.
const char* name_of(Symbol symbol);

struct VendorLibrary {
  std::string name;  ///< "nccl", "rccl"
  std::string path;
  int version = 0;                                                    ///< 23203
  std::array<void*, static_cast<size_t>(Symbol::Count)> functions{};  ///< null: missing
  std::optional<DynLib> library;                                      ///< keeps the functions valid

  [[nodiscard]] void* find(Symbol symbol) const { return functions[static_cast<size_t>(symbol)]; }
  /// hetccl's name for the calling thread's GPU: "cuda", "hip".
  [[nodiscard]] const char* device() const { return name == "rccl" ? "hip" : "cuda"; }
};

/// Returns the library that HETCCL_NCCL_LIBRARY or HETCCL_RCCL_LIBRARY names; else the one that the
/// program is linked with or has loaded; else the one found on a machine with such GPUs; else null.
/// Searches once, and makes no GPU driver call, since the program may still fork. Thread-safe, as
/// are the functions below.
const VendorLibrary* vendor();
/// Returns vendor() if this process has a GPU for it, so that it can serve a communicator.
const VendorLibrary* serving_vendor();
/// Returns the runtime of this process's GPUs, even without a vendor's library; null: no runtime.
const device::gpu::Api* gpu_runtime();
/// "no NCCL: ...; no RCCL: ...".
const std::string& why_no_vendor();

/// While it lives, calls of public functions on this thread come from the vendor's library, which
/// calls its own functions by their exported names.
class VendorScope {
 public:
  VendorScope() { ++depth(); }
  ~VendorScope() { --depth(); }
  VendorScope(const VendorScope&) = delete;
  VendorScope& operator=(const VendorScope&) = delete;
  static bool holds() { return depth() > 0; }

 private:
  static int& depth();
};

/// Calls a vendor function that is known to exist.
template <typename Function, typename... Args>
auto call_vendor(const VendorLibrary& vendor, Symbol symbol, Args... args) {
  const VendorScope inside;
  return reinterpret_cast<Function*>(vendor.find(symbol))(args...);
}

}  // namespace hetccl::nccl
