// A vendor's run-time compiler as a table: NVRTC (nvrtc.cc) and hipRTC (hiprtc.cc).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/dynlib.h"
#include "base/status.h"
#include "device/kernels/kernels.h"

namespace hetccl::device::kernels {

/// Calls return 0, or a code for `error_text`. Thread-safe, but one thread per program.
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
  /// Options for exact floating-point arithmetic, e.g. "--fmad=false".
  std::vector<std::string> options;
  std::vector<DynLib> libraries;  ///< keep the calls valid
};

/// Loads NVRTC from `path`. With "", takes the process's own copy, or one found by name or next to
/// the CUDA libraries that the process has loaded. SystemError lists what failed.
Result<std::shared_ptr<const Compiler>> load_nvrtc(const std::string& path);

/// Loads hipRTC, of ROCm 6 or newer, in the same way.
Result<std::shared_ptr<const Compiler>> load_hiprtc(const std::string& path);

/// Finds the calls of a library whose names begin with `prefix`; `code` is the name of its result.
/// Returns Unsupported if any is missing.
Result<std::shared_ptr<Compiler>> find_compiler(DynLib library, const std::string& prefix,
                                                const std::string& code);

/// Compiles one part of `text` for `architecture` ("sm_90"). Returns SystemError with the
/// compiler's output.
Result<std::string> compile(const Compiler& compiler, std::string_view text,
                            const std::string& architecture, int part);

}  // namespace hetccl::device::kernels
