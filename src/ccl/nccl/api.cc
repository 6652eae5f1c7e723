#include "ccl/nccl/api.h"

namespace hetccl::ccl::nccl {
namespace {

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
}

std::string text_of(int version) {
  return format("%d.%d.%d", version / 10'000, version / 100 % 100, version % 100);
}

}  // namespace

Result<std::shared_ptr<const Api>> load_nccl(const std::string& path) {
  const std::vector<std::string> names = {path.empty() ? "libnccl.so.2" : path};
  auto library = DynLib::open(names);
  if (!library.ok()) {
    return error(Code::Unsupported, "no NCCL: %s", library.status().message().c_str());
  }
  auto api = std::make_shared<Api>();
  api->name = "nccl";
  api->path = library->path();
  std::function<int(int*)> get_version;
  Symbols symbols(*library);
  symbols.find(get_version, "ncclGetVersion");
  find_all(symbols, *api);
  if (!symbols.missing().empty()) {
    return error(Code::Unsupported, "%s lacks %s: it is no NCCL, or too old", api->path.c_str(),
                 symbols.missing().c_str());
  }
  if (get_version(&api->version_code) != kSuccess || api->version_code < kOldestVersion) {
    return error(Code::Unsupported, "%s is NCCL %s; hetccl needs %s or newer", api->path.c_str(),
                 text_of(api->version_code).c_str(), text_of(kOldestVersion).c_str());
  }
  api->version = text_of(api->version_code);
  api->libraries.push_back(std::move(*library));
  return std::shared_ptr<const Api>(std::move(api));
}

}  // namespace hetccl::ccl::nccl
