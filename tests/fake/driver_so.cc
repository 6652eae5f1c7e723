// A library that calls itself CUDA's driver, with two GPUs that cannot be opened: for what hetccl
// asks of the driver that a process has loaded. A thread's context is the number of its GPU and
// one. Memory is a GPU's, and cannot be touched by the host.
#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>

#define CALL(name)        \
  extern "C" int name() { \
    return 0;             \
  }

namespace {

constexpr int kInvalidValue = 1, kNoMemory = 2, kNotInitialized = 3, kNoContext = 201;
constexpr size_t kMost = size_t{1} << 40U;
bool initialised = false;
thread_local uintptr_t context = 0;
std::mutex mutex;
std::map<uintptr_t, std::pair<size_t, int>> blocks;  // bytes, and whose

}  // namespace

/// Lets tests see whether the driver was initialised.
extern "C" bool fake_initialised() {
  return initialised;
}

extern "C" int cuInit(unsigned /*flags*/) {
  initialised = true;
  return 0;
}
extern "C" int cuDriverGetVersion(int* version) {
  *version = 13000;
  return 0;
}
extern "C" int cuGetErrorString(int code, const char** text) {
  *text = code == kNoMemory ? "out of memory" : "the fake driver refuses";
  return 0;
}
extern "C" int cuDeviceGetCount(int* count) {
  *count = 2;
  return 0;
}
extern "C" int cuCtxGetCurrent(void** current) {
  if (!initialised) return kNotInitialized;
  std::memcpy(current, &context, sizeof context);
  return 0;
}
extern "C" int cuCtxSetCurrent(void* current) {
  std::memcpy(&context, &current, sizeof context);
  return 0;
}
extern "C" int cuCtxGetDevice(int* device) {
  if (context == 0) return kNoContext;
  *device = static_cast<int>(context) - 1;
  return 0;
}
extern "C" int cuDevicePrimaryCtxRetain(void** /*made*/, int /*device*/) {
  return kInvalidValue;
}
extern "C" int cuMemAlloc_v2(void** memory, size_t bytes) {
  if (context == 0) return kNoContext;
  if (bytes > kMost) return kNoMemory;
  void* const mapped = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return kNoMemory;
  const std::lock_guard lock(mutex);
  blocks[reinterpret_cast<uintptr_t>(mapped)] = {bytes, static_cast<int>(context) - 1};
  *memory = mapped;
  return 0;
}
extern "C" int cuMemFree_v2(void* memory) {
  const std::lock_guard lock(mutex);
  const auto found = blocks.find(reinterpret_cast<uintptr_t>(memory));
  if (context == 0 || found == blocks.end()) return kInvalidValue;
  munmap(memory, found->second.first);
  blocks.erase(found);
  return 0;
}
// The three attributes that hetccl asks for: the kind, whether it is managed, and the device.
extern "C" int cuPointerGetAttributes(unsigned /*count*/, const int* /*attributes*/, void** data,
                                      uint64_t pointer) {
  if (!initialised) return kNotInitialized;
  const std::lock_guard lock(mutex);
  auto found = blocks.upper_bound(pointer);
  if (found == blocks.begin()) return 0;
  --found;
  const auto [bytes, device] = found->second;
  if (pointer >= found->first + bytes) return 0;
  const unsigned kind = 2;
  std::memcpy(data[0], &kind, sizeof kind);
  std::memcpy(data[2], &device, sizeof device);
  return 0;
}

CALL(cuDeviceGetAttribute)
CALL(cuDeviceGetName)
CALL(cuDeviceGetPCIBusId)
CALL(cuDevicePrimaryCtxRelease_v2)
CALL(cuEventCreate)
CALL(cuEventDestroy_v2)
CALL(cuEventRecord)
CALL(cuLaunchHostFunc)
CALL(cuLaunchKernel)
CALL(cuMemFreeHost)
CALL(cuMemHostAlloc)
CALL(cuMemHostRegister_v2)
CALL(cuMemHostUnregister)
CALL(cuMemcpyAsync)
CALL(cuModuleGetFunction)
CALL(cuModuleLoadData)
CALL(cuModuleUnload)
CALL(cuStreamCreate)
CALL(cuStreamDestroy_v2)
CALL(cuStreamIsCapturing)
CALL(cuStreamWaitEvent)
CALL(cuThreadExchangeStreamCaptureMode)
