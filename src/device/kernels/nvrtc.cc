// Finds NVRTC and its calls. Python's wheels keep it in folders that only their loader knows, so it
// is searched next to the libraries that this loader has loaded.
#include <algorithm>
#include <filesystem>

#include "device/kernels/compiler.h"

namespace hetccl::device::kernels {
namespace {

namespace fs = std::filesystem;

constexpr const char* kNvrtcNames[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2",
                                       "libnvrtc.so"};

std::vector<std::string> nvrtc_places() {
  std::vector<std::string> places = loaded_libraries("libnvrtc.so");
  places.insert(places.end(), std::begin(kNvrtcNames), std::end(kNvrtcNames));
  std::vector<std::string> folders;
  for (const char* loaded : {"libcudart.so", "libnccl.so", "libtorch_cuda.so"}) {
    for (const std::string& path : loaded_libraries(loaded)) {
      const fs::path folder = fs::path(path).parent_path();
      folders.push_back(folder);
      // site-packages/{nvidia/<package>,torch}/lib
      for (const fs::path& site : {folder.parent_path().parent_path(), folder / "../../nvidia"}) {
        folders.push_back(site / "cu13/lib");
        folders.push_back(site / "cuda_nvrtc/lib");
      }
    }
  }
  folders.emplace_back("/usr/local/cuda/lib64");
  for (const std::string& folder : folders) {
    for (const char* name : kNvrtcNames) {
      std::error_code failure;
      const fs::path path = fs::path(folder) / name;
      if (fs::exists(path, failure)) places.push_back(path);
    }
  }
  return places;
}

// NVRTC finds its builtins by name only, so load them first, from any place.
void load_builtins(const std::string& path, std::vector<DynLib>& libraries) {
  std::error_code failure;
  for (const auto& entry : fs::directory_iterator(fs::path(path).parent_path(), failure)) {
    if (!entry.path().filename().string().starts_with("libnvrtc-builtins.so.")) continue;
    const std::vector<std::string> name = {entry.path()};
    if (auto builtins = DynLib::open(name); builtins.ok())
      libraries.push_back(std::move(builtins).value());
  }
}

}  // namespace

Result<std::shared_ptr<const Compiler>> load_nvrtc(const std::string& path) {
  const auto names = path.empty() ? nvrtc_places() : std::vector<std::string>{path};
  HETCCL_ASSIGN(DynLib library, DynLib::open(names));
  HETCCL_ASSIGN(auto compiler, find_compiler(std::move(library), "nvrtc", "CUBIN"));
  compiler->options = {"--std=c++17", "--fmad=false", "--ftz=false", "--prec-div=true"};
  load_builtins(compiler->path, compiler->libraries);
  return std::shared_ptr<const Compiler>(std::move(compiler));
}

}  // namespace hetccl::device::kernels
