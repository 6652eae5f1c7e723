// A library with the symbols of CUDA's runtime 13, or of HIP's (FAKE_RUNTIME_HIP), that records its
// last call and says that it is of version FAKE_RUNTIME_VERSION. With FAKE_RUNTIME_THREAD the first
// count of devices starts a thread, which runs until the process ends.
#include <array>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <thread>

#include "fake/runtime_calls.h"

#ifdef FAKE_RUNTIME_HIP
#define NAME(call) hip##call
#define TEXT(call) "hip" #call
#else
#define NAME(call) cuda##call
#define TEXT(call) "cuda" #call
#endif
#define CALL0(call)             \
  extern "C" int NAME(call)() { \
    return record(TEXT(call));  \
  }
#define CALL1(call, A)             \
  extern "C" int NAME(call)(A a) { \
    return record(TEXT(call), a);  \
  }
#define CALL2(call, A, B)               \
  extern "C" int NAME(call)(A a, B b) { \
    return record(TEXT(call), a, b);    \
  }
#define CALL3(call, A, B, C)                 \
  extern "C" int NAME(call)(A a, B b, C c) { \
    return record(TEXT(call), a, b, c);      \
  }
#define CALL4(call, A, B, C, D)                   \
  extern "C" int NAME(call)(A a, B b, C c, D d) { \
    return record(TEXT(call), a, b, c, d);        \
  }
#define CALL5(call, A, B, C, D, E)                     \
  extern "C" int NAME(call)(A a, B b, C c, D d, E e) { \
    return record(TEXT(call), a, b, c, d, e);          \
  }
#define CALL6(call, A, B, C, D, E, F)                       \
  extern "C" int NAME(call)(A a, B b, C c, D d, E e, F f) { \
    return record(TEXT(call), a, b, c, d, e, f);            \
  }

namespace {

using Pointer = const void*;
struct Dim3 {
  unsigned x, y, z;
};
struct IpcHandle {
  std::array<char, 64> bytes;
};

hetccl::fake::RuntimeCall last_call{};
hetccl::fake::RuntimeAnswers answers;

template <typename Value>
uint64_t number_of(Value value) {
  uint64_t number = 0;
  std::memcpy(&number, &value, sizeof value < sizeof number ? sizeof value : sizeof number);
  return number;
}

template <typename... Values>
int record(const char* symbol, Values... values) {
  last_call = {symbol, sizeof...(values), {number_of(values)...}};
  return answers.error;
}

template <typename Value>
void put(void* memory, size_t offset, Value value) {
  std::memcpy(static_cast<char*>(memory) + offset, &value, sizeof value);
}

}  // namespace

extern "C" const hetccl::fake::RuntimeCall* fake_last_call() {
  return &last_call;
}
extern "C" hetccl::fake::RuntimeAnswers* fake_answers() {
  return &answers;
}

extern "C" int NAME(GetDeviceCount)(int* count) {
  *count = answers.devices;
#ifdef FAKE_RUNTIME_THREAD
  static const bool started = [] {
    std::thread([] {
      for (;;) std::this_thread::sleep_for(std::chrono::microseconds(100));
    }).detach();
    return true;
  }();
  static_cast<void>(started);
#endif
  return record(TEXT(GetDeviceCount), count);
}
extern "C" int NAME(DeviceGetAttribute)(int* value, int attribute, int device) {
  *value = 1000 + attribute;
  return record(TEXT(DeviceGetAttribute), value, attribute, device);
}
extern "C" const char* NAME(GetErrorString)(int error) {
  record(TEXT(GetErrorString), error);
  return "the vendor's text";
}
extern "C" int NAME(PointerGetAttributes)(void* attributes, Pointer memory) {
  put(attributes, 0, 2);
  put(attributes, 4, 5);
  put(attributes, 8, memory);
  put(attributes, 16, Pointer{attributes});
  return record(TEXT(PointerGetAttributes), attributes, memory);
}

CALL0(DeviceReset)
CALL0(DeviceSynchronize)
CALL0(GetLastError)
CALL0(PeekAtLastError)
CALL1(EventCreate, Pointer)
CALL1(EventDestroy, Pointer)
CALL1(EventQuery, Pointer)
CALL1(Free, Pointer)
CALL1(FreeHost, Pointer)
CALL1(GetDevice, Pointer)
CALL1(GraphDestroy, Pointer)
CALL1(GraphExecDestroy, Pointer)
CALL1(HostUnregister, Pointer)
CALL1(IpcCloseMemHandle, Pointer)
CALL1(SetDevice, int)
CALL1(StreamCreate, Pointer)
CALL1(StreamDestroy, Pointer)
CALL1(StreamQuery, Pointer)
CALL1(StreamSynchronize, Pointer)
CALL1(ThreadExchangeStreamCaptureMode, Pointer)
CALL2(DeviceEnablePeerAccess, int, unsigned)
CALL2(DeviceGetByPCIBusId, Pointer, Pointer)
CALL2(DeviceSetLimit, int, size_t)
CALL2(EventCreateWithFlags, Pointer, unsigned)
CALL2(EventRecord, Pointer, Pointer)
CALL2(GraphLaunch, Pointer, Pointer)
CALL2(IpcGetMemHandle, Pointer, Pointer)
CALL2(Malloc, Pointer, size_t)
CALL2(MallocHost, Pointer, size_t)
CALL2(StreamBeginCapture, Pointer, int)
CALL2(StreamCreateWithFlags, Pointer, unsigned)
CALL2(StreamEndCapture, Pointer, Pointer)
CALL3(DeviceCanAccessPeer, Pointer, int, int)
CALL3(DeviceGetPCIBusId, Pointer, int, int)
CALL3(EventElapsedTime, Pointer, Pointer, Pointer)
CALL3(FuncSetAttribute, Pointer, int, int)
CALL3(GraphInstantiateWithFlags, Pointer, Pointer, unsigned long long)
CALL3(HostAlloc, Pointer, size_t, unsigned)
CALL3(HostGetDevicePointer, Pointer, Pointer, unsigned)
CALL3(HostRegister, Pointer, size_t, unsigned)
CALL3(IpcOpenMemHandle, Pointer, IpcHandle, unsigned)
CALL3(LaunchHostFunc, Pointer, Pointer, Pointer)
CALL3(MallocManaged, Pointer, size_t, unsigned)
CALL3(Memset, Pointer, int, size_t)
CALL3(StreamWaitEvent, Pointer, Pointer, unsigned)
CALL4(Memcpy, Pointer, Pointer, size_t, int)
CALL4(MemsetAsync, Pointer, int, size_t, Pointer)
CALL5(GraphAddHostNode, Pointer, Pointer, Pointer, size_t, Pointer)
CALL5(MemcpyAsync, Pointer, Pointer, size_t, int, Pointer)
CALL6(LaunchKernel, Pointer, Dim3, Dim3, Pointer, size_t, Pointer)

#ifdef FAKE_RUNTIME_HIP
CALL1(HostFree, Pointer)
CALL3(ExtMallocWithFlags, Pointer, size_t, unsigned)
CALL3(ExtStreamCreateWithCUMask, Pointer, unsigned, Pointer)
CALL3(HostMalloc, Pointer, size_t, unsigned)
CALL4(ExtGetLinkTypeAndHopCount, int, int, Pointer, Pointer)
CALL6(StreamGetCaptureInfo_v2, Pointer, Pointer, Pointer, Pointer, Pointer, Pointer)
extern "C" int hipExtLaunchKernel(Pointer kernel, Dim3 grid, Dim3 block, Pointer arguments,
                                  size_t bytes, Pointer stream, Pointer start, Pointer stop,
                                  int flags) {
  return record("hipExtLaunchKernel", kernel, grid, block, arguments, bytes, stream, start, stop,
                flags);
}
extern "C" int hipRuntimeGetVersion(int* version) {
  *version = FAKE_RUNTIME_VERSION;
  return 0;
}
extern "C" int hipGetDevicePropertiesR0600(void* properties, int device) {
  std::strcpy(static_cast<char*>(properties), "a GPU of AMD's");
  put(properties, 288, size_t{1} << 36U);
  std::strcpy(static_cast<char*>(properties) + 1160, "gfx942:sramecc+:xnack-");
  return record("hipGetDevicePropertiesR0600", properties, device);
}
extern "C" int hipFuncGetAttributes(void* attributes, Pointer kernel) {
  const std::array<int, 14> ints = {3, 0, 40, 0, 50, 0, 60, 256, 64, -1, 7, 0, 80, 0};
  put(attributes, 0, ints);
  return record("hipFuncGetAttributes", attributes, kernel);
}
#else
extern "C" int cudaStreamGetCaptureInfo(Pointer stream, Pointer status, Pointer id, Pointer graph,
                                        Pointer dependencies, Pointer edges, Pointer count) {
  return record("cudaStreamGetCaptureInfo", stream, status, id, graph, dependencies, edges, count);
}
extern "C" int cudaRuntimeGetVersion(int* version) {
  *version = FAKE_RUNTIME_VERSION;
  return 0;
}
extern "C" int cudaGetDeviceProperties(void* properties, int device) {
  std::strcpy(static_cast<char*>(properties), "a GPU of NVIDIA's");
  put(properties, 288, size_t{1} << 36U);
  return record("cudaGetDeviceProperties", properties, device);
}
extern "C" int cudaFuncGetAttributes(void* attributes, Pointer kernel) {
  put(attributes, 0, std::array<size_t, 3>{80, 40, 50});
  put(attributes, 24, std::array<int, 7>{256, 64, 7, 3, 0, 60, -1});
  return record("cudaFuncGetAttributes", attributes, kernel);
}
#endif
