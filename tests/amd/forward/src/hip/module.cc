// Modules.
#include <mutex>
#include <set>

#include "hip/call.h"
#include "hip/functions.h"

using namespace forward;

namespace {

struct Functions {
  std::mutex mutex;
  std::set<const void*> known;
};

Functions& functions() {
  static Functions* instance = new Functions;
  return *instance;
}

}  // namespace

bool forward::known_function(const void* function) {
  Functions& state = functions();
  const std::lock_guard<std::mutex> lock(state.mutex);
  return state.known.count(function) != 0;
}

hipError_t hipModuleLoadData(hipModule_t* module, const void* image) {
  return in_context(__func__, [&](const cuda::Driver& driver) {
    if (module == nullptr || image == nullptr) return hipErrorInvalidValue;
    cuda::Handle loaded = nullptr;
    const int code = driver.module_load_data(&loaded, image);
    *module = static_cast<hipModule_t>(loaded);
    return from_cuda(code);
  });
}

hipError_t hipModuleUnload(hipModule_t module) {
  return in_context(__func__, [&](const cuda::Driver& driver) {
    return from_cuda(driver.module_unload(module));
  });
}

hipError_t hipModuleGetFunction(hipFunction_t* function, hipModule_t module, const char* kname) {
  return in_context(__func__, [&](const cuda::Driver& driver) {
    if (function == nullptr || kname == nullptr) return hipErrorInvalidValue;
    cuda::Handle found = nullptr;
    const int code = driver.module_get_function(&found, module, kname);
    *function = static_cast<hipFunction_t>(found);
    if (code != 0) return from_cuda(code);
    Functions& state = functions();
    const std::lock_guard<std::mutex> lock(state.mutex);
    state.known.insert(found);
    return hipSuccess;
  });
}
