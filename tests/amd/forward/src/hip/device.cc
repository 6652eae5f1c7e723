// Devices, versions and contexts.
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "cuda/numbers.h"
#include "hip/attributes.h"
#include "hip/call.h"
#include "hip/device_name.h"

using namespace forward;

namespace {

bool exists(const cuda::Driver& driver, int device) {
  return device >= 0 && device < device_count(driver);
}

}  // namespace

hipError_t hipInit(unsigned int flags) {
  return plain(__func__, [&](const cuda::Driver&) {
    return flags == 0 ? hipSuccess : reject("hipInit", "flags", flags);
  });
}

// AMD's driver and runtime report one version, that of HIP.
hipError_t hipDriverGetVersion(int* driverVersion) {
  if (driverVersion == nullptr) return remember(hipErrorInvalidValue);
  *driverVersion = HIP_VERSION;
  return remember(hipSuccess);
}

hipError_t hipRuntimeGetVersion(int* runtimeVersion) {
  if (runtimeVersion == nullptr) return remember(hipErrorInvalidValue);
  *runtimeVersion = HIP_VERSION;
  return remember(hipSuccess);
}

hipError_t hipGetDeviceCount(int* count) {
  if (count != nullptr) *count = 0;
  return plain(__func__, [&](const cuda::Driver& driver) {
    if (count == nullptr) return hipErrorInvalidValue;
    const hipError_t error = from_cuda(driver.device_get_count(count));
    return error == hipSuccess && *count == 0 ? hipErrorNoDevice : error;
  });
}

hipError_t hipGetDevice(int* deviceId) {
  return plain(__func__, [&](const cuda::Driver&) {
    if (deviceId == nullptr) return hipErrorInvalidValue;
    *deviceId = current_device();
    return hipSuccess;
  });
}

hipError_t hipSetDevice(int deviceId) {
  return plain(__func__, [&](const cuda::Driver& driver) { return set_device(driver, deviceId); });
}

hipError_t hipDeviceGet(hipDevice_t* device, int ordinal) {
  return plain(__func__, [&](const cuda::Driver& driver) {
    if (device == nullptr) return hipErrorInvalidValue;
    return from_cuda(driver.device_get(device, ordinal));
  });
}

hipError_t hipDeviceGetName(char* name, int len, hipDevice_t device) {
  return plain(__func__, [&](const cuda::Driver& driver) {
    if (name == nullptr || len <= 0) return hipErrorInvalidValue;
    if (!exists(driver, device)) return hipErrorInvalidDevice;
    std::snprintf(name, static_cast<std::size_t>(len), "%s", device_name(driver, device).c_str());
    return hipSuccess;
  });
}

hipError_t hipDeviceGetUuid(hipUUID* uuid, hipDevice_t device) {
  static_assert(sizeof(hipUUID) == sizeof(cuda::Uuid));
  return plain(__func__, [&](const cuda::Driver& driver) {
    if (uuid == nullptr) return hipErrorInvalidValue;
    return from_cuda(driver.device_get_uuid(reinterpret_cast<cuda::Uuid*>(uuid), device));
  });
}

hipError_t hipDeviceTotalMem(size_t* bytes, hipDevice_t device) {
  return plain(__func__, [&](const cuda::Driver& driver) {
    if (bytes == nullptr) return hipErrorInvalidValue;
    return from_cuda(driver.device_total_mem(bytes, device));
  });
}

hipError_t hipDeviceGetPCIBusId(char* pciBusId, int len, int device) {
  return plain(__func__, [&](const cuda::Driver& driver) {
    if (pciBusId == nullptr || len <= 0) return hipErrorInvalidValue;
    return from_cuda(driver.device_get_pci_bus_id(pciBusId, len, device));
  });
}

hipError_t hipDeviceGetByPCIBusId(int* device, const char* pciBusId) {
  return plain(__func__, [&](const cuda::Driver& driver) {
    if (device == nullptr || pciBusId == nullptr) return hipErrorInvalidValue;
    return from_cuda(driver.device_get_by_pci_bus_id(device, pciBusId));
  });
}

hipError_t hipDeviceGetAttribute(int* pi, hipDeviceAttribute_t attr, int deviceId) {
  return plain(__func__, [&](const cuda::Driver& driver) {
    if (pi == nullptr) return hipErrorInvalidValue;
    if (!exists(driver, deviceId)) return hipErrorInvalidDevice;
    return read_attribute(driver, pi, attr, deviceId);
  });
}

hipError_t hipDevicePrimaryCtxRetain(hipCtx_t* pctx, hipDevice_t dev) {
  return plain(__func__, [&](const cuda::Driver& driver) {
    cuda::Handle context = nullptr;
    if (pctx == nullptr) return hipErrorInvalidValue;
    const hipError_t error = from_cuda(driver.primary_retain(&context, dev));
    *pctx = static_cast<hipCtx_t>(context);
    return error;
  });
}

hipError_t hipDevicePrimaryCtxRelease(hipDevice_t dev) {
  return plain(__func__,
               [&](const cuda::Driver& driver) { return from_cuda(driver.primary_release(dev)); });
}

// HIP's current context is the primary context of the thread's device, even before first use.
hipError_t hipCtxGetCurrent(hipCtx_t* ctx) {
  return in_context(__func__, [&](const cuda::Driver& driver) {
    cuda::Handle context = nullptr;
    if (ctx == nullptr) return hipErrorInvalidValue;
    const hipError_t error = primary_context(driver, current_device(), &context);
    *ctx = static_cast<hipCtx_t>(context);
    return error;
  });
}

hipError_t hipCtxSetCurrent(hipCtx_t ctx) {
  return plain(__func__, [&](const cuda::Driver& driver) {
    if (ctx == nullptr) return hipSuccess;
    const int set = driver.ctx_set_current(ctx);
    int device = 0;
    if (set != 0) return from_cuda(set);
    const int code = driver.ctx_get_device(&device);
    return code == 0 ? set_device(driver, device) : from_cuda(code);
  });
}

hipError_t hipCtxGetDevice(hipDevice_t* device) {
  return plain(__func__, [&](const cuda::Driver&) {
    if (device == nullptr) return hipErrorInvalidValue;
    *device = current_device();
    return hipSuccess;
  });
}

hipError_t hipDeviceSynchronize() {
  return in_context(__func__,
                    [](const cuda::Driver& driver) { return from_cuda(driver.ctx_synchronize()); });
}

hipError_t hipDeviceReset() {
  return in_context(__func__, reset_device);
}

// AMD's header (hipLimit_t) says that an undefined limit gives hipErrorUnsupportedLimit.
hipError_t hipDeviceSetLimit(enum hipLimit_t limit, size_t value) {
  static_assert(static_cast<int>(hipLimitStackSize) == cuda::kLimitStack);
  static_assert(static_cast<int>(hipLimitPrintfFifoSize) == cuda::kLimitPrintf);
  static_assert(static_cast<int>(hipLimitMallocHeapSize) == cuda::kLimitHeap);
  return in_context(__func__, [&](const cuda::Driver& driver) {
    if (limit < hipLimitStackSize || limit >= hipLimitRange) {
      (void)reject("hipDeviceSetLimit", "limit", limit);
      return hipErrorUnsupportedLimit;
    }
    return from_cuda(driver.ctx_set_limit(limit, value));
  });
}

hipError_t hipMemGetInfo(size_t* free, size_t* total) {
  return in_context(__func__, [&](const cuda::Driver& driver) {
    if (free == nullptr || total == nullptr) return hipErrorInvalidValue;
    return from_cuda(driver.mem_get_info(free, total));
  });
}
