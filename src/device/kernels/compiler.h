// A vendor's run-time compiler, as a table: NVRTC (nvrtc.cc) and hipRTC (hiprtc.cc).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/dynlib.h"
#include "base/status.h"
#include "device/kernels/kernels.h"

namespace hetccl::device::kernels {

/// Calls return 0, or what `error_text` explains. Thread-safe, each program by one thread.
struct Compiler {
  std::string name;     ///< "nvrtc", "hiprtc"
  std::string version;  ///< "13.0"
  std::string path;     ///< of the library
  std::function<int(void** program, const char* source, const char* file)> create;
  std::function<int(void* program, int n_options, const char* const* options)> compile;
  std::function<int(void* program, size_t* bytes)> log_bytes, code_bytes;
  std::function<int(void* program, char* text)> log, code;
  std::function<int(void** program)> destroy;
  std::function<const char*(int)> error_text;
  /// What makes floating-point arithmetic exact, e.g. "--fmad=false".
  std::vector<std::string> options;
  std::vector<DynLib> libraries;  ///< keep the calls valid
};

/// NVRTC from `path`; with "" the process's own, else one found by name or beside the CUDA
/// libraries that the process has loaded. SystemError lists what failed.
Result<std::shared_ptr<const Compiler>> load_nvrtc(const std::string& path);

/// hipRTC, of ROCm 6 and newer, in the same way.
Result<std::shared_ptr<const Compiler>> load_hiprtc(const std::string& path);

/// The calls of a library whose names begin with `prefix`; `code` is what it calls its result.
/// Unsupported where it lacks any.
Result<std::shared_ptr<Compiler>> find_compiler(DynLib library, const std::string& prefix,
                                                const std::string& code);

/// One part of `text` for `architecture` ("sm_90"). SystemError with the compiler's words.
Result<std::string> compile(const Compiler& compiler, std::string_view text,
                            const std::string& architecture, int part);

}  // namespace hetccl::device::kernels
