// Kernel launches and kernel attributes.
#include <array>
#include <cstdint>

#include "cuda/numbers.h"
#include "hip/call.h"
#include "hip/functions.h"
#include "hip/noncoherent.h"

namespace forward {
namespace {

static_assert(hipFuncAttributeMaxDynamicSharedMemorySize ==
              static_cast<int>(cuda::kFunctionMaxDynamicShared));
static_assert(hipFuncAttributePreferredSharedMemoryCarveout ==
              static_cast<int>(cuda::kFunctionCarveout));

// HIP ends the list with 3, NVIDIA with 0; the buffer and its size are 1 and 2 for both.
constexpr std::size_t kExtraEntries = 5;
using Extra = std::array<void*, kExtraEntries>;

hipError_t translate(void* const* hip, Extra* cuda) {
  std::size_t at = 0;
  for (; hip[at] != HIP_LAUNCH_PARAM_END; at += 2) {
    const bool buffer = hip[at] == HIP_LAUNCH_PARAM_BUFFER_POINTER;
    if (at + 2 >= kExtraEntries || (!buffer && hip[at] != HIP_LAUNCH_PARAM_BUFFER_SIZE)) {
      return reject("hipModuleLaunchKernel", "extra", cuda::address(hip[at]));
    }
    (*cuda)[at] = cuda::launch_parameter(buffer ? cuda::kLaunchBuffer : cuda::kLaunchBufferSize);
    (*cuda)[at + 1] = hip[at + 1];
  }
  (*cuda)[at] = cuda::launch_parameter(cuda::kLaunchEnd);
  return hipSuccess;
}

hipError_t launch(const cuda::Driver& driver, const void* function, dim3 grid, dim3 block,
                  std::size_t shared_bytes, cuda::Handle queue, void** parameters) {
  if (!known_function(function)) return hipErrorInvalidDeviceFunction;
  return between_merges(driver, queue, [&] {
    return from_cuda(driver.launch_kernel(
        const_cast<void*>(function), grid.x, grid.y, grid.z, block.x, block.y, block.z,
        static_cast<unsigned>(shared_bytes), queue, parameters, nullptr));
  });
}

hipError_t record(const cuda::Driver& driver, hipEvent_t event, cuda::Handle queue) {
  return event == nullptr ? hipSuccess : from_cuda(driver.event_record(event, queue));
}

}  // namespace
}  // namespace forward

using namespace forward;

hipError_t hipModuleLaunchKernel(hipFunction_t f, unsigned int gridDimX, unsigned int gridDimY,
                                 unsigned int gridDimZ, unsigned int blockDimX,
                                 unsigned int blockDimY, unsigned int blockDimZ,
                                 unsigned int sharedMemBytes, hipStream_t stream,
                                 void** kernelParams, void** extra) {
  return enqueue(__func__, stream, [&](const cuda::Driver& driver, cuda::Handle queue) {
    Extra translated{};
    if (f == nullptr) return hipErrorInvalidHandle;
    if (kernelParams != nullptr && extra != nullptr) return hipErrorInvalidValue;
    if (extra != nullptr) {
      const hipError_t error = translate(extra, &translated);
      if (error != hipSuccess) return error;
    }
    void** list = extra == nullptr ? nullptr : translated.data();
    return between_merges(driver, queue, [&] {
      return from_cuda(driver.launch_kernel(f, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY,
                                            blockDimZ, sharedMemBytes, queue, kernelParams, list));
    });
  });
}

hipError_t hipLaunchKernel(const void* function_address, dim3 numBlocks, dim3 dimBlocks,
                           void** args, size_t sharedMemBytes, hipStream_t stream) {
  return enqueue(__func__, stream, [&](const cuda::Driver& driver, cuda::Handle queue) {
    return launch(driver, function_address, numBlocks, dimBlocks, sharedMemBytes, queue, args);
  });
}

hipError_t hipExtLaunchKernel(const void* function_address, dim3 numBlocks, dim3 dimBlocks,
                              void** args, size_t sharedMemBytes, hipStream_t stream,
                              hipEvent_t startEvent, hipEvent_t stopEvent, int flags) {
  return enqueue(__func__, stream, [&](const cuda::Driver& driver, cuda::Handle queue) {
    if (flags != 0 && flags != hipExtAnyOrderLaunch) {
      return reject("hipExtLaunchKernel", "flags", static_cast<unsigned>(flags));
    }
    hipError_t error = record(driver, startEvent, queue);
    if (error != hipSuccess) return error;
    error = launch(driver, function_address, numBlocks, dimBlocks, sharedMemBytes, queue, args);
    return error == hipSuccess ? record(driver, stopEvent, queue) : error;
  });
}

hipError_t hipFuncSetAttribute(const void* func, hipFuncAttribute attr, int value) {
  return in_context(__func__, [&](const cuda::Driver& driver) {
    if (attr != hipFuncAttributeMaxDynamicSharedMemorySize &&
        attr != hipFuncAttributePreferredSharedMemoryCarveout) {
      return reject("hipFuncSetAttribute", "attribute", attr);
    }
    if (!known_function(func)) return hipErrorInvalidDeviceFunction;
    return from_cuda(driver.function_set_attribute(const_cast<void*>(func), attr, value));
  });
}

hipError_t hipFuncGetAttributes(struct hipFuncAttributes* attr, const void* func) {
  return in_context(__func__, [&](const cuda::Driver& driver) {
    if (attr == nullptr) return hipErrorInvalidValue;
    if (!known_function(func)) return hipErrorInvalidDeviceFunction;
    int code = 0;
    const auto read = [&](int attribute) {
      int value = 0;
      const int result = driver.function_get_attribute(&value, attribute, const_cast<void*>(func));
      if (code == 0) code = result;
      return value;
    };
    attr->binaryVersion = read(cuda::kFunctionBinaryVersion);
    attr->cacheModeCA = read(cuda::kFunctionCacheModeCa);
    attr->constSizeBytes = static_cast<size_t>(read(cuda::kFunctionConstBytes));
    attr->localSizeBytes = static_cast<size_t>(read(cuda::kFunctionLocalBytes));
    attr->maxDynamicSharedSizeBytes = read(cuda::kFunctionMaxDynamicShared);
    attr->maxThreadsPerBlock = read(cuda::kFunctionMaxThreads);
    attr->numRegs = read(cuda::kFunctionRegisters);
    attr->preferredShmemCarveout = read(cuda::kFunctionCarveout);
    attr->ptxVersion = read(cuda::kFunctionPtxVersion);
    attr->sharedSizeBytes = static_cast<size_t>(read(cuda::kFunctionSharedBytes));
    return from_cuda(code);
  });
}
