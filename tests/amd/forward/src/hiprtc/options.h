// Translates hipRTC's options to NVRTC's.
#pragma once

#include <string>
#include <vector>

namespace forward {

struct Options {
  std::vector<std::string> nvrtc;  // For nvrtcCompileProgram, with the GPU's own architecture.
  std::string error;               // Empty, or the reason why an option is not hipRTC's.
  bool wrong_architecture = false;
};

/// Checks every option against what AMD's compiler takes. `real_architecture` is "sm_XX".
/// --offload-arch and --gpu-architecture need an AMD architecture; definitions, include folders
/// and the language standard go on; code generation flags of clang (-O3, -m, -f, -W) are dropped.
/// AMD's hipRTC 6.4.3 crashes on an architecture that it does not know and reports other unknown
/// options as compilation errors; here both are errors.
[[nodiscard]] Options translate_options(const std::vector<std::string>& options,
                                        const std::string& real_architecture);

/// Returns "sm_XX" of the current GPU, from FORWARD_SM or from the driver; empty if neither knows.
[[nodiscard]] std::string real_architecture();

}  // namespace forward
