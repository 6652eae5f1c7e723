#include "nccl/vendor.h"

#include <dlfcn.h>

#include <filesystem>
#include <span>
#include <sstream>

#include "ccl/nccl/api.h"
#include "nccl/settings.h"

namespace hetccl::nccl {
namespace {

constexpr std::array kNames = {
#define OWN(name) #name,
#define VENDOR(name, words, comm, refused) #name,
#include "nccl/symbols.def"
#undef OWN
#undef VENDOR
};

struct Kind {
  const char* name;         // "nccl"
  const char* title;        // "NCCL"
  const char* soname;       // "libnccl.so.2"
  const char* device_file;  // exists on a machine with such GPUs
  const char* wheel;        // folder of the PyPI package's library, in site-packages
  std::string Config::* given;
};
constexpr std::array kKinds = {Kind{"nccl", "NCCL", "libnccl.so.2", "/dev/nvidiactl",
                                    "nvidia/nccl/lib", &Config::nccl_library},
                               Kind{"rccl", "RCCL", "librccl.so.1", "/dev/kfd",
                                    "_rocm_sdk_libraries/lib", &Config::rccl_library}};

struct Found {
  std::unique_ptr<const VendorLibrary> vendor;
  std::string why;
};

// "libnccl.so" for "libnccl.so.2".
std::string stem_of(const Kind& kind) {
  const std::string name = kind.soname;
  return name.substr(0, name.rfind('.'));
}

// Paths of libraries that the program is linked with or has loaded.
std::vector<std::string> loaded_paths(const Kind& kind) {
  std::vector<std::string> paths = loaded_libraries(stem_of(kind));
  if (void* const linked = dlsym(RTLD_NEXT, "ncclGetVersion")) {
    std::string path = library_of(linked);
    if (std::filesystem::path(path).filename().string().starts_with(stem_of(kind)))
      paths.insert(paths.begin(), std::move(path));
  }
  return paths;
}

// Paths where the library may be. The dynamic linker may find hetccl's own stand-in under the
// soname, so its search folders are listed too.
std::vector<std::string> system_paths(const Kind& kind) {
  std::vector<std::string> paths = {kind.soname};
  const char* const search = std::getenv("LD_LIBRARY_PATH");
  std::string folders = std::string(search != nullptr ? search : "") +
                        ":/usr/local/lib:/usr/lib/x86_64-linux-gnu:/usr/lib/aarch64-linux-gnu:"
                        "/lib64:/usr/lib64:/usr/lib:/usr/local/cuda/lib64:/opt/rocm/lib";
  std::filesystem::path packages = library_of(reinterpret_cast<const void*>(&vendor));
  for (int up = 0; up < 4 && packages.has_parent_path(); ++up) {
    packages = packages.parent_path();
    if (packages.filename() == "site-packages") folders += ":" + (packages / kind.wheel).string();
  }
  std::istringstream list(folders);
  for (std::string folder; std::getline(list, folder, ':');) {
    std::error_code ignored;
    const auto path = std::filesystem::path(folder) / kind.soname;
    if (!folder.empty() && std::filesystem::is_regular_file(path, ignored)) paths.push_back(path);
  }
  return paths;
}

Result<DynLib> open_first(const Kind& kind, const std::vector<std::string>& paths) {
  std::string tried;
  for (const std::string& path : paths) {
    auto library = DynLib::open(std::vector<std::string>{path});
    if (library.ok() && library->symbol(ccl::nccl::kStandInMarker) == nullptr) return library;
    tried.append(tried.empty() ? "" : "; ")
        .append(library.ok() ? path + " is hetccl's stand-in" : library.status().message());
  }
  return error(ErrorCode::Unsupported, "no %s: %s", kind.title, tried.c_str());
}

Result<std::unique_ptr<const VendorLibrary>> load(const Kind& kind, DynLib library) {
  auto vendor = std::make_unique<VendorLibrary>();
  library.stay_loaded();
  vendor->name = kind.name;
  vendor->path = library.path();
  for (size_t i = 0; i < kNames.size(); ++i) vendor->functions[i] = library.symbol(kNames[i]);
  for (const Symbol needed : {Symbol::ncclGetVersion, Symbol::ncclGetUniqueId,
                              Symbol::ncclCommInitRankConfig, Symbol::ncclCommAbort}) {
    if (vendor->find(needed) != nullptr) continue;
    return error(ErrorCode::Unsupported, "%s lacks %s: it is no %s, or older than 2.18",
                 vendor->path.c_str(), name_of(needed), kind.title);
  }
  call_vendor<int(int*)>(*vendor, Symbol::ncclGetVersion, &vendor->version);
  vendor->library.emplace(std::move(library));
  return std::unique_ptr<const VendorLibrary>(std::move(vendor));
}

// Loads the library from the first usable path. On failure records the reason in `found`.
bool try_paths(const Kind& kind, const std::vector<std::string>& paths, Found& found) {
  auto library = open_first(kind, paths);
  auto loaded = library.ok() ? load(kind, std::move(library).value()) : library.status();
  if (loaded.ok())
    found.vendor = std::move(loaded).value();
  else
    found.why.append(found.why.empty() ? "" : "; ").append(loaded.status().message());
  return found.vendor != nullptr;
}

Found find() {
  Found found;
  auto config = read_settings();
  if (!config.ok()) return {nullptr, config.status().message()};
  const auto given = [&](const Kind& kind) { return (*config).*kind.given; };
  for (const Kind& kind : kKinds) {
    const bool named = !given(kind).empty() && given(kind) != "none";
    if (named && try_paths(kind, {given(kind)}, found)) return found;
  }
  for (const Kind& kind : kKinds) {
    const auto paths = loaded_paths(kind);
    if (given(kind).empty() && !paths.empty() && try_paths(kind, paths, found)) return found;
  }
  for (const Kind& kind : kKinds) {
    std::error_code ignored;
    const bool has_gpu = std::filesystem::exists(kind.device_file, ignored);
    if (given(kind).empty() && has_gpu && try_paths(kind, system_paths(kind), found)) return found;
    if (!given(kind).empty() || !has_gpu) {
      found.why +=
          format("%sno %s: %s", found.why.empty() ? "" : "; ", kind.title,
                 given(kind) == "none" ? "it is set to none" : "this machine has no such GPU");
    }
  }
  return found;
}

// Leaked: other threads may use it when the process ends.
const Found& found() {
  static const Found* const once = new Found(find());
  return *once;
}

Result<std::shared_ptr<const device::gpu::Api>> load_runtime() {
  const bool hip = vendor() != nullptr ? vendor()->name == kKinds[1].name
                                       : loaded_libraries("libcuda.so").empty();
  if (!hip) return device::gpu::load_cuda();
  if (vendor() == nullptr && loaded_libraries("libamdhip64.so").empty())
    return error(ErrorCode::Unsupported, "the process uses no GPU");
  HETCCL_ASSIGN(const Config config, read_settings());
  return device::gpu::load_hip(config.hip_library);
}

}  // namespace

const char* name_of(Symbol symbol) {
  return kNames[static_cast<size_t>(symbol)];
}

const VendorLibrary* vendor() {
  return found().vendor.get();
}

const device::gpu::Api* gpu_runtime() {
  static const auto* const once = new Result(load_runtime());
  return once->ok() ? once->value().get() : nullptr;
}

const VendorLibrary* serving_vendor() {
  return gpu_runtime() != nullptr ? vendor() : nullptr;
}

const std::string& why_no_vendor() {
  return found().why;
}

int& VendorScope::depth() {
  thread_local int depth = 0;
  return depth;
}

}  // namespace hetccl::nccl
