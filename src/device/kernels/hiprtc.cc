// Finds hipRTC: ROCm's wheels and packages keep it next to the runtime.
#include <filesystem>

#include "device/kernels/compiler.h"

namespace hetccl::device::kernels {
namespace {

namespace fs = std::filesystem;

constexpr const char* kHiprtcNames[] = {"libhiprtc.so.7", "libhiprtc.so.6", "libhiprtc.so"};

std::vector<std::string> hiprtc_places() {
  std::vector<std::string> places = loaded_libraries("libhiprtc.so");
  for (const std::string& runtime : loaded_libraries("libamdhip64.so")) {
    for (const char* name : kHiprtcNames) {
      std::error_code failure;
      const fs::path path = fs::path(runtime).parent_path() / name;
      if (fs::exists(path, failure)) places.push_back(path);
    }
  }
  places.insert(places.end(), std::begin(kHiprtcNames), std::end(kHiprtcNames));
  places.emplace_back("/opt/rocm/lib/libhiprtc.so");
  return places;
}

}  // namespace

Result<std::shared_ptr<const Compiler>> load_hiprtc(const std::string& path) {
  const auto names = path.empty() ? hiprtc_places() : std::vector<std::string>{path};
  HETCCL_ASSIGN(DynLib library, DynLib::open(names));
  HETCCL_ASSIGN(auto compiler, find_compiler(std::move(library), "hiprtc", "Code"));
  // LLVM 21's SLP vectoriser miscompiles code that splits words: lanes that it shifts too far,
  // because it does not need them, reach the result.
  compiler->options = {"--std=c++17", "-ffp-contract=off", "-fno-gpu-flush-denormals-to-zero",
                       "-fhip-fp32-correctly-rounded-divide-sqrt", "-fno-slp-vectorize"};
  return std::shared_ptr<const Compiler>(std::move(compiler));
}

}  // namespace hetccl::device::kernels
