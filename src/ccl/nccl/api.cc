#include "ccl/nccl/api.h"

namespace hetccl::ccl::nccl {
namespace {

constexpr const char* kHipLibrary = "libamdhip64.so";
constexpr const char* kHipCall = "hipGetDeviceCount";  // any call that every HIP runtime has

void find_all(Symbols& symbols, Api& api) {
  symbols.find(api.error_text, "ncclGetErrorString");
  symbols.optional(api.last_error, "ncclGetLastError");
  symbols.find(api.unique_id, "ncclGetUniqueId");
  symbols.find(api.init, "ncclCommInitRank");
  symbols.optional(api.init_with, "ncclCommInitRankConfig");
  symbols.find(api.destroy, "ncclCommDestroy");
  symbols.find(api.abort, "ncclCommAbort");
  symbols.find(api.async_error, "ncclCommGetAsyncError");
  symbols.find(api.group_start, "ncclGroupStart");
  symbols.find(api.group_end, "ncclGroupEnd");
  symbols.find(api.all_reduce, "ncclAllReduce");
  symbols.find(api.reduce_scatter, "ncclReduceScatter");
  symbols.find(api.reduce, "ncclReduce");
  symbols.find(api.broadcast, "ncclBroadcast");
  symbols.find(api.all_gather, "ncclAllGather");
  symbols.find(api.send, "ncclSend");
  symbols.find(api.recv, "ncclRecv");
  symbols.optional(api.create_premul_sum, "ncclRedOpCreatePreMulSum");
  symbols.optional(api.destroy_op, "ncclRedOpDestroy");
  if (!api.destroy_op) api.create_premul_sum = nullptr;
  symbols.optional(api.register_memory, "ncclCommRegister");
  symbols.optional(api.deregister_memory, "ncclCommDeregister");
  if (!api.deregister_memory) api.register_memory = nullptr;
}

std::string text_of(int version) {
  return format("%d.%d.%d", version / 10'000, version / 100 % 100, version % 100);
}

// Opens the vendor's library behind hetccl's own stand-in (compat/nccl), whose calls lead back
// here.
Result<DynLib> open_behind(DynLib library, const char* name) {
  std::function<const char*()> vendor_path;
  Symbols(library).optional(vendor_path, kStandInMarker);
  if (!vendor_path) return library;
  const std::string path = vendor_path();
  const bool is_rccl = path.substr(path.rfind('/') + 1).find("rccl") != std::string::npos;
  if (!path.empty() && is_rccl == (name == std::string_view("RCCL")))
    return DynLib::open(std::vector<std::string>{path});
  return error(ErrorCode::Unsupported, "%s is hetccl's stand-in, and finds no %s",
               library.path().c_str(), name);
}

// Loads a library with these calls, whatever its version. `absent` begins the error if it is
// missing.
Result<std::shared_ptr<Api>> load(const char* name, const char* absent, const std::string& path) {
  auto library = DynLib::open(std::vector<std::string>{path});
  if (library.ok()) library = open_behind(std::move(library).value(), name);
  if (!library.ok()) {
    return error(ErrorCode::Unsupported, "%s%s", absent, library.status().message().c_str());
  }
  auto api = std::make_shared<Api>();
  api->path = library->path();
  std::function<int(int*)> get_version;
  Symbols symbols(*library);
  symbols.find(get_version, "ncclGetVersion");
  find_all(symbols, *api);
  if (!symbols.missing().empty()) {
    return error(ErrorCode::Unsupported, "%s lacks %s: it is no %s, or too old", api->path.c_str(),
                 symbols.missing().c_str(), name);
  }
  library->stay_loaded();
  if (get_version(&api->version_code) != kSuccess) api->version_code = 0;
  api->libraries.push_back(std::move(*library));
  return api;
}

Status check_version(const Api& api, const char* name) {
  if (api.version_code >= kOldestVersion) return {};
  return error(ErrorCode::Unsupported, "%s is %s %s; hetccl needs %s or newer", api.path.c_str(),
               name, text_of(api.version_code).c_str(), text_of(kOldestVersion).c_str());
}

// Returns the HIP runtime that RCCL's calls reach; null: none. The dynamic linker searches the
// global scope before a library's own dependencies. Skips tools there that intercept HIP.
const void* find_runtime_of(const DynLib& rccl) {
  for (const void* call : {global_symbol(kHipCall), rccl.symbol(kHipCall)}) {
    const std::string path = library_of(call);
    if (path.substr(path.rfind('/') + 1).starts_with(kHipLibrary)) return call;
  }
  return nullptr;
}

// Checks that RCCL calls the HIP runtime at `hip`, whoever loaded it, in whatever order.
Status check_runtime(const Api& api, const std::string& hip) {
  if (hip.empty()) return {};
  HETCCL_ASSIGN(const DynLib runtime, DynLib::open(std::vector<std::string>{hip}));
  const void* const used = runtime.symbol(kHipCall);
  const void* const called = find_runtime_of(api.libraries.back());
  if (used == nullptr || called == nullptr || used == called) return {};
  return error(ErrorCode::Unsupported,
               "%s has loaded the HIP runtime %s beside the process's own %s: use the RCCL that "
               "belongs to that, by HETCCL_RCCL_LIBRARY",
               api.path.c_str(), library_of(called).c_str(), library_of(used).c_str());
}

}  // namespace

Result<std::shared_ptr<const Api>> load_nccl(const std::string& path) {
  HETCCL_ASSIGN(const auto api, load("NCCL", "no NCCL: ", path.empty() ? "libnccl.so.2" : path));
  HETCCL_TRY(check_version(*api, "NCCL"));
  api->name = "nccl";
  api->version = text_of(api->version_code);
  return std::shared_ptr<const Api>(api);
}

Result<std::shared_ptr<const Api>> load_rccl(const std::string& path, const std::string& hip) {
  HETCCL_ASSIGN(const auto api, load("RCCL", "no RCCL: ", path.empty() ? "librccl.so.1" : path));
  HETCCL_TRY(check_runtime(*api, hip));
  const bool unknown = api->version_code == 0;
  if (unknown) api->version_code = kOldestVersion;
  HETCCL_TRY(check_version(*api, "RCCL"));
  api->name = "rccl";
  api->version = unknown ? "unknown" : text_of(api->version_code);
  return std::shared_ptr<const Api>(api);
}

}  // namespace hetccl::ccl::nccl
