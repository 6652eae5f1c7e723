// Memory and events that another process shares.
#include <cstring>

#include "cuda/numbers.h"
#include "hip/call.h"
#include "hip/noncoherent.h"

using namespace forward;

namespace {

static_assert(sizeof(hipIpcMemHandle_t) == sizeof(cuda::IpcHandle));
static_assert(sizeof(hipIpcEventHandle_t) == sizeof(cuda::IpcHandle));
static_assert(hipIpcMemLazyEnablePeerAccess == cuda::kIpcLazyPeerAccess);

template <typename Hip>
cuda::IpcHandle to_cuda(const Hip& handle) {
  cuda::IpcHandle result;
  std::memcpy(&result, &handle, sizeof result);
  return result;
}

}  // namespace

hipError_t hipIpcGetMemHandle(hipIpcMemHandle_t* handle, void* devPtr) {
  return in_context(__func__, [&](const cuda::Driver& driver) {
    if (handle == nullptr) return hipErrorInvalidValue;
    return from_cuda(
        driver.ipc_get_mem(reinterpret_cast<cuda::IpcHandle*>(handle), host_copy(devPtr)));
  });
}

// AMD's header: the flags "must be specified as hipIpcMemLazyEnablePeerAccess".
hipError_t hipIpcOpenMemHandle(void** devPtr, hipIpcMemHandle_t handle, unsigned int flags) {
  return in_context(__func__, [&](const cuda::Driver& driver) {
    if (flags != hipIpcMemLazyEnablePeerAccess) {
      return reject("hipIpcOpenMemHandle", "flags", flags);
    }
    if (devPtr == nullptr) return hipErrorInvalidValue;
    cuda::Address pointer = 0;
    const int code = driver.ipc_open_mem(&pointer, to_cuda(handle), cuda::kIpcLazyPeerAccess);
    *devPtr = reinterpret_cast<void*>(pointer);
    return from_cuda(code);
  });
}

hipError_t hipIpcCloseMemHandle(void* devPtr) {
  return in_context(__func__, [&](const cuda::Driver& driver) {
    return from_cuda(driver.ipc_close_mem(cuda::address(devPtr)));
  });
}

hipError_t hipIpcGetEventHandle(hipIpcEventHandle_t* handle, hipEvent_t event) {
  return in_context(__func__, [&](const cuda::Driver& driver) {
    if (handle == nullptr) return hipErrorInvalidValue;
    return from_cuda(driver.ipc_get_event(reinterpret_cast<cuda::IpcHandle*>(handle), event));
  });
}

hipError_t hipIpcOpenEventHandle(hipEvent_t* event, hipIpcEventHandle_t handle) {
  return in_context(__func__, [&](const cuda::Driver& driver) {
    if (event == nullptr) return hipErrorInvalidValue;
    cuda::Handle opened = nullptr;
    const int code = driver.ipc_open_event(&opened, to_cuda(handle));
    *event = static_cast<hipEvent_t>(opened);
    return from_cuda(code);
  });
}
