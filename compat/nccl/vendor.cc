#include "nccl/vendor.h"

#include <dlfcn.h>

#include <filesystem>
#include <span>
#include <sstream>

#include "ccl/nccl/api.h"

namespace hetccl::nccl {
namespace {

constexpr std::array kNames = {
#define OWN(name) #name,
#define VENDOR(name, words, comm) #name,
#include "nccl/symbols.def"
#undef OWN
#undef VENDOR
};

struct Kind {
  const char* name;    // "nccl"
  const char* title;   // "NCCL"
  const char* soname;  // "libnccl.so.2"
  std::string Config::* given;
};
constexpr std::array kKinds = {Kind{"nccl", "NCCL", "libnccl.so.2", &Config::nccl_library},
                               Kind{"rccl", "RCCL", "librccl.so.1", &Config::rccl_library}};

struct Found {
  std::unique_ptr<const Vendor> vendor;
  std::string why;
};

// Where a library may lie that the dynamic linker would not find, because this one has its name.
std::vector<std::string> other_paths(const char* soname) {
  std::vector<std::string> paths;
  const char* search = std::getenv("LD_LIBRARY_PATH");
  std::istringstream folders(std::string(search != nullptr ? search : "") +
                             ":/usr/local/lib:/usr/lib/x86_64-linux-gnu:/usr/lib/aarch64-linux-gnu:"
                             "/lib64:/usr/lib64:/usr/lib:/usr/local/cuda/lib64:/opt/rocm/lib");
  for (std::string folder; std::getline(folders, folder, ':');) {
    std::error_code ignored;
    const auto path = std::filesystem::path(folder) / soname;
    if (!folder.empty() && std::filesystem::is_regular_file(path, ignored)) paths.push_back(path);
  }
  return paths;
}

// What may be the vendor's library, the likeliest first.
std::vector<std::string> candidates(const Kind& kind) {
  std::vector<std::string> paths;
  if (void* const linked = dlsym(RTLD_NEXT, "ncclGetVersion"))
    paths.push_back(library_of(linked));
  for (std::string& path : loaded_libraries(std::string(kind.soname).substr(0, 10)))
    paths.push_back(std::move(path));
  paths.emplace_back(kind.soname);
  for (std::string& path : other_paths(kind.soname)) paths.push_back(std::move(path));
  return paths;
}

bool is_rccl(const DynLib& library) {
  return library.path().find("rccl") != std::string::npos;
}

Result<DynLib> open(const Kind& kind, const std::string& given) {
  if (given == "none")
    return error(ErrorCode::Unsupported, "HETCCL_%s_LIBRARY is none", kind.title);
  if (!given.empty()) {
    HETCCL_ASSIGN(DynLib library, DynLib::open_apart(given));
    if (library.symbol(ccl::nccl::kStandInMarker) == nullptr) return library;
    return error(ErrorCode::InvalidArgument, "%s is hetccl's stand-in for it", given.c_str());
  }
  std::string tried;
  for (const std::string& path : candidates(kind)) {
    auto library = DynLib::open_apart(path);
    const bool fits = library.ok() && library->symbol(ccl::nccl::kStandInMarker) == nullptr &&
                      is_rccl(*library) == (kind.name == kKinds[1].name);
    if (fits) return library;
    if (!library.ok()) tried.append(tried.empty() ? "" : "; ").append(library.status().message());
  }
  return error(ErrorCode::Unsupported, "%s",
               tried.empty() ? "only hetccl's stand-in was found" : tried.c_str());
}

Result<std::unique_ptr<const Vendor>> load(const Kind& kind, const Config& config) {
  auto vendor = std::make_unique<Vendor>();
  const std::string& given = config.*kind.given;
  HETCCL_ASSIGN(DynLib library, open(kind, given));
  library.stay_loaded();
  vendor->name = kind.name;
  vendor->given = !given.empty();
  vendor->path = library.path();
  for (size_t i = 0; i < kNames.size(); ++i) vendor->functions[i] = library.symbol(kNames[i]);
  for (const Symbol needed : {Symbol::ncclGetVersion, Symbol::ncclGetUniqueId,
                              Symbol::ncclCommInitRankConfig, Symbol::ncclCommAbort}) {
    if (vendor->find(needed) != nullptr) continue;
    return error(ErrorCode::Unsupported, "%s lacks %s: it is no %s, or older than 2.18",
                 vendor->path.c_str(), name_of(needed), kind.title);
  }
  call_vendor<int(int*)>(*vendor, Symbol::ncclGetVersion, &vendor->version);
  vendor->libraries.push_back(std::move(library));
  return std::unique_ptr<const Vendor>(std::move(vendor));
}

Found find() {
  Found found;
  auto config = Config::from_environment();
  if (!config.ok()) return {nullptr, config.status().message()};
  for (const bool given : {true, false}) {
    for (const Kind& kind : kKinds) {
      if ((*config.*kind.given).empty() == given) continue;
      auto vendor = load(kind, *config);
      if (vendor.ok()) return {std::move(vendor).value(), ""};
      found.why += format("%sno %s: %s", found.why.empty() ? "" : "; ", kind.title,
                          vendor.status().message().c_str());
    }
  }
  return found;
}

// Never destroyed: other threads may be in it when the process ends.
const Found& found() {
  static const Found* const once = new Found(find());
  return *once;
}

Result<std::shared_ptr<const device::gpu::Api>> load_runtime() {
  if (vendor() == nullptr) return error(ErrorCode::Unsupported, "%s", why_no_vendor().c_str());
  if (vendor()->name == kKinds[0].name) return device::gpu::load_cuda();
  HETCCL_ASSIGN(const Config config, Config::from_environment());
  return device::gpu::load_hip(config.hip_library);
}

}  // namespace

const char* name_of(Symbol symbol) {
  return kNames[static_cast<size_t>(symbol)];
}

const Vendor* vendor() {
  return found().vendor.get();
}

const device::gpu::Api* gpu_runtime() {
  static const auto* const once = new Result(load_runtime());
  return once->ok() ? once->value().get() : nullptr;
}

const Vendor* serving_vendor() {
  return vendor() != nullptr && (vendor()->given || gpu_runtime() != nullptr) ? vendor() : nullptr;
}

const std::string& why_no_vendor() {
  return found().why;
}

int& InVendor::depth() {
  thread_local int depth = 0;
  return depth;
}

}  // namespace hetccl::nccl
