// A tool for NVTX: a library that it loads by NVTX_INJECTION64_PATH, with functions to call. It
// records the names of ranges as they open and close, for its test.
#include <nvtx3/nvToolsExt.h>

#include <mutex>
#include <string>

namespace {

std::mutex mutex;
std::string domain, seen;

void note(const std::string& text) {
  std::lock_guard lock(mutex);
  seen += text;
}

nvtxDomainHandle_t NVTX_API create(const char* name) {
  std::lock_guard lock(mutex);
  domain = name;
  return reinterpret_cast<nvtxDomainHandle_t>(&domain);
}

int NVTX_API push(nvtxDomainHandle_t of, const nvtxEventAttributes_t* range) {
  const bool known = of == reinterpret_cast<nvtxDomainHandle_t>(&domain);
  note((known ? domain : "?") + ":" + range->message.ascii + "(" +
       std::to_string(range->payload.ullValue));
  return 0;
}

int NVTX_API pop(nvtxDomainHandle_t /*of*/) {
  note(") ");
  return 0;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int InitializeInjectionNvtx2(
    NvtxGetExportTableFunc_t get) {
  const auto* callbacks = static_cast<const NvtxExportTableCallbacks*>(get(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned size = 0;
  if (callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size) == 0) return 0;
  *table[NVTX_CBID_CORE2_DomainCreateA] = reinterpret_cast<NvtxFunctionPointer>(&create);
  *table[NVTX_CBID_CORE2_DomainRangePushEx] = reinterpret_cast<NvtxFunctionPointer>(&push);
  *table[NVTX_CBID_CORE2_DomainRangePop] = reinterpret_cast<NvtxFunctionPointer>(&pop);
  return 1;
}

// Returns the ranges seen since the last call.
extern "C" __attribute__((visibility("default"))) const char* seen_ranges() {
  static std::string answer;
  std::lock_guard lock(mutex);
  answer.swap(seen);
  seen.clear();
  return answer.c_str();
}
