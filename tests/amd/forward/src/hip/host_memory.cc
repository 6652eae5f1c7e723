// Pinned host memory.
#include "hip/host_memory.h"

#include <map>
#include <mutex>

#include "cuda/numbers.h"
#include "hip/call.h"
#include "hip/noncoherent.h"

using namespace forward;

namespace {

static_assert(hipHostMallocPortable == cuda::kHostPortable);
static_assert(hipHostMallocMapped == cuda::kHostDeviceMap);
static_assert(hipHostMallocWriteCombined == cuda::kHostWriteCombined);
static_assert(hipHostMallocNumaUser == 0x20000000);
static_assert(hipHostMallocCoherent == 0x40000000);
static_assert(hipHostMallocNonCoherent == 0x80000000);
static_assert(hipHostRegisterPortable == cuda::kRegisterPortable);
static_assert(hipHostRegisterMapped == cuda::kRegisterDeviceMap);
// One number, two names: read-only (ignored on AMD) and coarse-grained. To NVIDIA 8 is read-only.
static_assert(hipHostRegisterReadOnly == 8 && hipExtHostRegisterCoarseGrained == 8);

constexpr unsigned kSharedFlags =
    hipHostMallocPortable | hipHostMallocMapped | hipHostMallocWriteCombined;
constexpr unsigned kAmdFlags =
    hipHostMallocNumaUser | hipHostMallocCoherent | hipHostMallocNonCoherent;
constexpr unsigned kRegisterFlags =
    hipHostRegisterPortable | hipHostRegisterMapped | hipHostRegisterReadOnly;

// The flags that each allocation was made with, for hipHostGetFlags and hipPointerGetAttributes.
struct Allocations {
  std::mutex mutex;
  std::map<void*, unsigned> flags;
};

Allocations& allocations() {
  static Allocations* instance = new Allocations;
  return *instance;
}

void note(void* pointer, unsigned flags) {
  Allocations& state = allocations();
  const std::lock_guard<std::mutex> lock(state.mutex);
  state.flags[pointer] = flags;
}

void forget(void* pointer) {
  Allocations& state = allocations();
  const std::lock_guard<std::mutex> lock(state.mutex);
  state.flags.erase(pointer);
}

hipError_t check(const char* function, unsigned flags) {
  const unsigned undefined = flags & ~(kSharedFlags | kAmdFlags);
  if (undefined != 0) return reject(function, "flags", flags);
  const unsigned both = hipHostMallocCoherent | hipHostMallocNonCoherent;
  return (flags & both) == both ? reject(function, "flags (coherent and non-coherent)", flags)
                                : hipSuccess;
}

// HIP maps pinned memory into every GPU, whatever the flags say.
hipError_t allocate_coherent(const cuda::Driver& driver, void** ptr, size_t size, unsigned flags) {
  const unsigned cuda_flags = (flags & kSharedFlags) | cuda::kHostPortable | cuda::kHostDeviceMap;
  return from_cuda(driver.mem_host_alloc(ptr, size, cuda_flags));
}

hipError_t allocate(const char* function, void** ptr, size_t size, unsigned flags) {
  return in_context(function, [&](const cuda::Driver& driver) {
    const hipError_t error = check(function, flags);
    if (error != hipSuccess) return error;
    if (ptr == nullptr) return hipErrorInvalidValue;
    *ptr = nullptr;
    if (size == 0) return hipSuccess;
    const hipError_t allocated = is_noncoherent(flags)
                                     ? allocate_noncoherent(driver, ptr, size)
                                     : allocate_coherent(driver, ptr, size, flags);
    if (allocated == hipSuccess) note(*ptr, flags);
    return allocated;
  });
}

// The driver knows non-coherent memory as registered host memory by its alias only.
void* alias_of(void* pointer) {
  return reinterpret_cast<void*>(host_copy(pointer));
}

hipError_t release(const char* function, void* ptr) {
  return in_context(function, [&](const cuda::Driver& driver) {
    hipError_t error = hipSuccess;
    if (ptr == nullptr) return hipSuccess;
    forget(ptr);
    if (free_noncoherent(driver, ptr, &error)) return error;
    return from_cuda(driver.mem_free_host(ptr));
  });
}

}  // namespace

bool forward::host_allocation_flags(void* pointer, unsigned* flags) {
  Allocations& state = allocations();
  const std::lock_guard<std::mutex> lock(state.mutex);
  const auto found = state.flags.find(pointer);
  if (found == state.flags.end()) return false;
  *flags = found->second;
  return true;
}

hipError_t hipHostMalloc(void** ptr, size_t size, unsigned int flags) {
  return allocate(__func__, ptr, size, flags);
}

hipError_t hipHostAlloc(void** ptr, size_t size, unsigned int flags) {
  return allocate(__func__, ptr, size, flags);
}

hipError_t hipMallocHost(void** ptr, size_t size) {
  return allocate(__func__, ptr, size, hipHostMallocDefault);
}

hipError_t hipHostFree(void* ptr) {
  return release(__func__, ptr);
}

hipError_t hipFreeHost(void* ptr) {
  return release(__func__, ptr);
}

hipError_t hipHostGetFlags(unsigned int* flagsPtr, void* hostPtr) {
  return plain(__func__, [&](const cuda::Driver&) {
    const bool known = flagsPtr != nullptr && host_allocation_flags(hostPtr, flagsPtr);
    return known ? hipSuccess : hipErrorInvalidValue;
  });
}

// AMD's header says "Not supported" of hipHostRegisterIoMemory, so the call refuses it.
hipError_t hipHostRegister(void* hostPtr, size_t sizeBytes, unsigned int flags) {
  return in_context(__func__, [&](const cuda::Driver& driver) {
    if (flags == hipHostRegisterIoMemory) return hipErrorNotSupported;
    if ((flags & ~kRegisterFlags) != 0) return reject("hipHostRegister", "flags", flags);
    const unsigned cuda_flags = cuda::kRegisterPortable | cuda::kRegisterDeviceMap;
    return from_cuda(driver.mem_host_register(alias_of(hostPtr), sizeBytes, cuda_flags));
  });
}

hipError_t hipHostUnregister(void* hostPtr) {
  return in_context(__func__, [&](const cuda::Driver& driver) {
    return from_cuda(driver.mem_host_unregister(hostPtr));
  });
}

hipError_t hipHostGetDevicePointer(void** devPtr, void* hstPtr, unsigned int flags) {
  return in_context(__func__, [&](const cuda::Driver& driver) {
    if (flags != 0) return reject("hipHostGetDevicePointer", "flags", flags);
    if (devPtr == nullptr) return hipErrorInvalidValue;
    cuda::Address device = 0;
    const int code = driver.mem_host_get_device_pointer(&device, alias_of(hstPtr), 0);
    *devPtr = reinterpret_cast<void*>(device - alias_distance(hstPtr));
    return from_cuda(code);
  });
}
