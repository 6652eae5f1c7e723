// A recording stub of libcuda.so.1 for the tests. It computes nothing; it records each call.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>

#include "cuda/driver.h"
#include "recorder.h"

using forward::cuda::AccessDescriptor;
using forward::cuda::Address;
using forward::cuda::AllocationProperties;
using forward::cuda::Handle;
using forward::cuda::HostFunction;
using forward::cuda::HostNode;
using forward::cuda::IpcHandle;
using forward::cuda::MemoryHandle;
using forward::cuda::Uuid;

namespace {

thread_local Handle current = nullptr;

Address address_of(void* pointer) {
  return reinterpret_cast<Address>(pointer);
}

std::uintptr_t next_handle() {
  static std::uintptr_t last = 0x1000;
  return ++last;
}

int number(const char* variable, int otherwise) {
  const char* value = std::getenv(variable);
  return value == nullptr ? otherwise : std::atoi(value);
}

int stub_devices() {
  return number("STUB_DEVICES", 2);
}

// The test sets the status and the memory type that the stub answers.
int answer(const char* name) {
  stub::State& shared = stub::state();
  const std::lock_guard<std::mutex> lock(shared.mutex);
  return shared.results[name];
}

int capture_status() {
  return answer("capture status");
}

int answer_pointer(void* data, int attribute, int result) {
  if (attribute == 2) *static_cast<unsigned*>(data) = static_cast<unsigned>(answer("memory type"));
  if (attribute == 8) *static_cast<bool*>(data) = answer("managed") != 0;
  if (attribute == 9) *static_cast<int*>(data) = 1;
  if (attribute == 3) *static_cast<Address*>(data) = 0x9000;
  if (attribute == 4) *static_cast<void**>(data) = reinterpret_cast<void*>(0x8000);
  return result;
}

// The kernel of mode non-coherent, whose launches are logged as "merge", the offset that it reads
// from, and the stream.
Handle merge_kernel() {
  return reinterpret_cast<void*>(0xaa);
}

// The kernel refuses to read memory that this process cannot read.
bool readable(Address at) {
  int ends[2];
  if (pipe(ends) != 0) return true;
  const bool read = write(ends[1], reinterpret_cast<void*>(at), 1) == 1;
  (void)close(ends[0]);
  (void)close(ends[1]);
  return read;
}

}  // namespace

STUB_EXPORT int cuInit(unsigned flags) {
  const int result = stub::record("cuInit", flags);
  return result;
}

STUB_EXPORT int cuDeviceGetCount(int* count) {
  const int result = stub::record("cuDeviceGetCount");
  *count = stub_devices();
  return result;
}

STUB_EXPORT int cuDeviceGet(int* device, int ordinal) {
  const int result = stub::record("cuDeviceGet", ordinal);
  *device = ordinal;
  return result;
}

STUB_EXPORT int cuDeviceGetName(char* name, int length, int device) {
  const int result = stub::record("cuDeviceGetName", length, device);
  std::snprintf(name, static_cast<std::size_t>(length), "Stub GPU");
  return result;
}

STUB_EXPORT int cuDeviceGetUuid_v2([[maybe_unused]] Uuid* uuid, int device) {
  const int result = stub::record("cuDeviceGetUuid_v2", device);
  return result;
}

STUB_EXPORT int cuDeviceTotalMem_v2(std::size_t* bytes, int device) {
  const int result = stub::record("cuDeviceTotalMem_v2", device);
  *bytes = std::size_t{80} << 30;
  return result;
}

STUB_EXPORT int cuDeviceGetAttribute(int* value, int attribute, int device) {
  const int result = stub::record("cuDeviceGetAttribute", attribute, device);
  *value = attribute == 20 ? 0 : 1000 + attribute;
  return result;
}

STUB_EXPORT int cuDeviceGetPCIBusId(char* id, int length, int device) {
  const int result = stub::record("cuDeviceGetPCIBusId", length, device);
  std::snprintf(id, static_cast<std::size_t>(length), "0000:0%d:00.0", device);
  return result;
}

STUB_EXPORT int cuDeviceGetByPCIBusId(int* device, const char* id) {
  const int result = stub::record("cuDeviceGetByPCIBusId");
  *device = id[6] - '0';
  return result;
}

STUB_EXPORT int cuDeviceCanAccessPeer(int* yes, int device, int peer) {
  const int result = stub::record("cuDeviceCanAccessPeer", device, peer);
  *yes = 1;
  return result;
}

STUB_EXPORT int cuDevicePrimaryCtxRetain(Handle* context, int device) {
  const int result = stub::record("cuDevicePrimaryCtxRetain", device);
  *context = reinterpret_cast<void*>(0xc0 + static_cast<std::uintptr_t>(device));
  return result;
}

STUB_EXPORT int cuDevicePrimaryCtxRelease_v2(int device) {
  const int result = stub::record("cuDevicePrimaryCtxRelease_v2", device);
  return result;
}

STUB_EXPORT int cuDevicePrimaryCtxReset_v2(int device) {
  const int result = stub::record("cuDevicePrimaryCtxReset_v2", device);
  return result;
}

STUB_EXPORT int cuCtxGetCurrent(Handle* context) {
  const int result = stub::record("cuCtxGetCurrent");
  *context = current;
  return result;
}

STUB_EXPORT int cuCtxSetCurrent(Handle context) {
  const int result = stub::record("cuCtxSetCurrent", context);
  current = context;
  return result;
}

STUB_EXPORT int cuCtxGetDevice(int* device) {
  const int result = stub::record("cuCtxGetDevice");
  *device = static_cast<int>(reinterpret_cast<std::uintptr_t>(current) - 0xc0);
  return result;
}

STUB_EXPORT int cuCtxSynchronize() {
  const int result = stub::record("cuCtxSynchronize");
  return result;
}

STUB_EXPORT int cuCtxSetLimit(int limit, std::size_t value) {
  const int result = stub::record("cuCtxSetLimit", limit, value);
  return result;
}

STUB_EXPORT int cuCtxEnablePeerAccess(Handle context, unsigned flags) {
  const int result = stub::record("cuCtxEnablePeerAccess", context, flags);
  return result;
}

STUB_EXPORT int cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  const int result = stub::record("cuCtxGetStreamPriorityRange");
  *least = 0;
  *greatest = -5;
  return result;
}

STUB_EXPORT int cuMemGetInfo_v2(std::size_t* free, std::size_t* total) {
  const int result = stub::record("cuMemGetInfo_v2");
  *free = 1;
  *total = 2;
  return result;
}

STUB_EXPORT int cuMemAlloc_v2(Address* pointer, std::size_t bytes) {
  const int result = stub::record("cuMemAlloc_v2", bytes);
  *pointer = address_of(std::calloc(1, bytes));
  return result;
}

STUB_EXPORT int cuMemAllocManaged(Address* pointer, std::size_t bytes, unsigned flags) {
  const int result = stub::record("cuMemAllocManaged", bytes, flags);
  *pointer = address_of(std::calloc(1, bytes));
  return result;
}

STUB_EXPORT int cuMemFree_v2(Address pointer) {
  const int result = stub::record("cuMemFree_v2", pointer);
  std::free(reinterpret_cast<void*>(pointer));
  return result;
}

STUB_EXPORT int cuMemHostAlloc(void** pointer, std::size_t bytes, unsigned flags) {
  const int result = stub::record("cuMemHostAlloc", bytes, flags);
  *pointer = std::calloc(1, bytes);
  return result;
}

STUB_EXPORT int cuMemFreeHost(void* pointer) {
  const int result = stub::record("cuMemFreeHost", pointer);
  std::free(pointer);
  return result;
}

STUB_EXPORT int cuMemHostRegister_v2(void* pointer, std::size_t bytes, unsigned flags) {
  const int result = stub::record("cuMemHostRegister_v2", pointer, bytes, flags);
  return result;
}

STUB_EXPORT int cuMemHostUnregister(void* pointer) {
  const int result = stub::record("cuMemHostUnregister", pointer);
  return result;
}

STUB_EXPORT int cuMemHostGetDevicePointer_v2(Address* device, void* host, unsigned flags) {
  const int result = stub::record("cuMemHostGetDevicePointer_v2", host, flags);
  *device = address_of(host);
  return result;
}

STUB_EXPORT int cuMemGetAddressRange_v2(Address* base, std::size_t* bytes, Address pointer) {
  const int result = stub::record("cuMemGetAddressRange_v2", pointer);
  *base = pointer & ~0xfffULL;
  *bytes = 4096;
  return result;
}

STUB_EXPORT int cuPointerGetAttribute(void* data, int attribute, Address pointer) {
  const int result = stub::record("cuPointerGetAttribute", data, attribute, pointer);
  return answer_pointer(data, attribute, result);
}

STUB_EXPORT int cuIpcGetMemHandle([[maybe_unused]] IpcHandle* handle, Address pointer) {
  const int result = stub::record("cuIpcGetMemHandle", pointer);
  return result;
}

STUB_EXPORT int cuIpcOpenMemHandle_v2(Address* pointer, [[maybe_unused]] IpcHandle handle,
                                      unsigned flags) {
  const int result = stub::record("cuIpcOpenMemHandle_v2", flags);
  *pointer = 0x7000;
  return result;
}

STUB_EXPORT int cuIpcCloseMemHandle(Address pointer) {
  const int result = stub::record("cuIpcCloseMemHandle", pointer);
  return result;
}

STUB_EXPORT int cuIpcGetEventHandle([[maybe_unused]] IpcHandle* handle, Handle event) {
  const int result = stub::record("cuIpcGetEventHandle", event);
  return result;
}

STUB_EXPORT int cuIpcOpenEventHandle(Handle* event, [[maybe_unused]] IpcHandle handle) {
  const int result = stub::record("cuIpcOpenEventHandle");
  *event = reinterpret_cast<void*>(0xe1);
  return result;
}

STUB_EXPORT int cuMemGetAllocationGranularity(std::size_t* bytes,
                                              const AllocationProperties* properties, int option) {
  *bytes = std::size_t{2} << 20;
  return stub::record("cuMemGetAllocationGranularity", properties->location.device, option);
}

STUB_EXPORT int cuMemAddressReserve(Address* pointer, std::size_t bytes, std::size_t alignment,
                                    Address wanted, unsigned long long flags) {
  const int result = stub::record("cuMemAddressReserve", bytes, alignment, wanted, flags);
  const int access = answer("reservation in use") != 0 ? PROT_READ : PROT_NONE;
  if (result == 0) {
    *pointer = address_of(mmap(nullptr, bytes, access, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  }
  return result;
}

// The last number tells whether the host can read the memory, which it must not.
STUB_EXPORT int cuMemAddressFree(Address pointer, std::size_t bytes) {
  const int result = stub::record("cuMemAddressFree", pointer, bytes, readable(pointer));
  (void)munmap(reinterpret_cast<void*>(pointer), bytes);
  return result;
}

STUB_EXPORT int cuMemCreate(MemoryHandle* handle, std::size_t bytes,
                            const AllocationProperties* properties, unsigned long long flags) {
  *handle = 0x50;
  return stub::record("cuMemCreate", bytes, properties->type, properties->location.type,
                      properties->location.device, flags);
}

STUB_EXPORT int cuMemRelease(MemoryHandle handle) {
  return stub::record("cuMemRelease", handle);
}

STUB_EXPORT int cuMemMap(Address pointer, std::size_t bytes, std::size_t offset,
                         MemoryHandle handle, unsigned long long flags) {
  return stub::record("cuMemMap", pointer, bytes, offset, handle, flags);
}

STUB_EXPORT int cuMemUnmap(Address pointer, std::size_t bytes) {
  return stub::record("cuMemUnmap", pointer, bytes);
}

STUB_EXPORT int cuMemSetAccess(Address pointer, std::size_t bytes, const AccessDescriptor* access,
                               std::size_t count) {
  return stub::record("cuMemSetAccess", pointer, bytes, access[0].flags, count);
}

STUB_EXPORT int cuMemcpy(Address to, Address from, std::size_t bytes) {
  const int result = stub::record("cuMemcpy", to, from, bytes);
  return result;
}

STUB_EXPORT int cuMemcpyAsync(Address to, Address from, std::size_t bytes, Handle stream) {
  const int result = stub::record("cuMemcpyAsync", to, from, bytes, stream);
  return result;
}

STUB_EXPORT int cuMemsetD8_v2(Address to, unsigned char value, std::size_t bytes) {
  const int result = stub::record("cuMemsetD8_v2", to, value, bytes);
  return result;
}

STUB_EXPORT int cuMemsetD8Async(Address to, unsigned char value, std::size_t bytes, Handle stream) {
  const int result = stub::record("cuMemsetD8Async", to, value, bytes, stream);
  return result;
}

STUB_EXPORT int cuStreamCreateWithPriority(Handle* stream, unsigned flags, int priority) {
  const int result = stub::record("cuStreamCreateWithPriority", flags, priority);
  *stream = reinterpret_cast<void*>(next_handle());
  return result;
}

STUB_EXPORT int cuStreamDestroy_v2(Handle stream) {
  const int result = stub::record("cuStreamDestroy_v2", stream);
  return result;
}

STUB_EXPORT int cuStreamSynchronize(Handle stream) {
  const int result = stub::record("cuStreamSynchronize", stream);
  return result;
}

STUB_EXPORT int cuStreamQuery(Handle stream) {
  const int result = stub::record("cuStreamQuery", stream);
  return result;
}

STUB_EXPORT int cuStreamWaitEvent(Handle stream, Handle event, unsigned flags) {
  const int result = stub::record("cuStreamWaitEvent", stream, event, flags);
  return result;
}

STUB_EXPORT int cuStreamWaitValue32_v2(Handle stream, Address at, std::uint32_t value,
                                       unsigned flags) {
  const int result = stub::record("cuStreamWaitValue32_v2", stream, at, value, flags);
  return result;
}

STUB_EXPORT int cuStreamWaitValue64_v2(Handle stream, Address at, std::uint64_t value,
                                       unsigned flags) {
  const int result = stub::record("cuStreamWaitValue64_v2", stream, at, value, flags);
  return result;
}

STUB_EXPORT int cuStreamWriteValue32_v2(Handle stream, Address at, std::uint32_t value,
                                        unsigned flags) {
  const int result = stub::record("cuStreamWriteValue32_v2", stream, at, value, flags);
  return result;
}

STUB_EXPORT int cuStreamWriteValue64_v2(Handle stream, Address at, std::uint64_t value,
                                        unsigned flags) {
  const int result = stub::record("cuStreamWriteValue64_v2", stream, at, value, flags);
  return result;
}

STUB_EXPORT int cuStreamIsCapturing(Handle stream, int* status) {
  const int result = stub::record("cuStreamIsCapturing", stream);
  *status = capture_status();
  return result;
}

STUB_EXPORT int cuStreamBeginCapture_v2(Handle stream, int mode) {
  const int result = stub::record("cuStreamBeginCapture_v2", stream, mode);
  return result;
}

STUB_EXPORT int cuStreamEndCapture(Handle stream, Handle* graph) {
  const int result = stub::record("cuStreamEndCapture", stream);
  *graph = reinterpret_cast<void*>(0x61);
  return result;
}

STUB_EXPORT int cuStreamGetCaptureInfo_v2(Handle stream, int* status, std::uint64_t* id,
                                          Handle* graph, const Handle** dependencies,
                                          std::size_t* count) {
  const int result = stub::record("cuStreamGetCaptureInfo_v2", stream);
  *status = capture_status();
  *id = 77;
  *graph = reinterpret_cast<void*>(0x61);
  *dependencies = nullptr;
  *count = 3;
  return result;
}

STUB_EXPORT int cuThreadExchangeStreamCaptureMode(int* mode) {
  const int result = stub::record("cuThreadExchangeStreamCaptureMode", *mode);
  *mode = (*mode + 1) % 3;
  return result;
}

STUB_EXPORT int cuEventCreate(Handle* event, unsigned flags) {
  const int result = stub::record("cuEventCreate", flags);
  *event = reinterpret_cast<void*>(next_handle());
  return result;
}

STUB_EXPORT int cuEventDestroy_v2(Handle event) {
  const int result = stub::record("cuEventDestroy_v2", event);
  return result;
}

STUB_EXPORT int cuEventRecord(Handle event, Handle stream) {
  const int result = stub::record("cuEventRecord", event, stream);
  return result;
}

STUB_EXPORT int cuEventQuery(Handle event) {
  const int result = stub::record("cuEventQuery", event);
  return result;
}

STUB_EXPORT int cuEventSynchronize(Handle event) {
  const int result = stub::record("cuEventSynchronize", event);
  return result;
}

STUB_EXPORT int cuEventElapsedTime(float* milliseconds, Handle start, Handle stop) {
  const int result = stub::record("cuEventElapsedTime", start, stop);
  *milliseconds = 1.5F;
  return result;
}

STUB_EXPORT int cuLaunchHostFunc(Handle stream, HostFunction function, void* data) {
  const int result = stub::record("cuLaunchHostFunc", stream, data);
  if (result == 0) function(data);
  return result;
}

STUB_EXPORT int cuLaunchKernel(Handle function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                               unsigned block_x, unsigned block_y, unsigned block_z,
                               unsigned shared_bytes, Handle stream, void** parameters,
                               void** extra) {
  if (function == merge_kernel()) {
    return stub::record("merge", *static_cast<std::uint32_t*>(parameters[1]), stream);
  }
  const int result =
      stub::record("cuLaunchKernel", function, grid_x, grid_y, grid_z, block_x, block_y, block_z,
                   shared_bytes, stream, parameters, extra == nullptr ? nullptr : extra[0],
                   extra == nullptr ? nullptr : extra[4]);
  return result;
}

STUB_EXPORT int cuModuleLoadData(Handle* module, const void* image) {
  const int result = stub::record("cuModuleLoadData", image);
  *module = reinterpret_cast<void*>(0x30);
  return result;
}

STUB_EXPORT int cuModuleUnload(Handle module) {
  const int result = stub::record("cuModuleUnload", module);
  return result;
}

STUB_EXPORT int cuModuleGetFunction(Handle* function, Handle module, const char* name) {
  const int result = stub::record("cuModuleGetFunction", module);
  const bool merge = std::strcmp(name, "merge") == 0;
  *function = merge ? merge_kernel() : reinterpret_cast<void*>(0xf0);
  return result;
}

STUB_EXPORT int cuFuncGetAttribute(int* value, int attribute, Handle function) {
  const int result = stub::record("cuFuncGetAttribute", attribute, function);
  *value = 2000 + attribute;
  return result;
}

STUB_EXPORT int cuFuncSetAttribute(Handle function, int attribute, int value) {
  const int result = stub::record("cuFuncSetAttribute", function, attribute, value);
  return result;
}

STUB_EXPORT int cuGraphAddHostNode(Handle* node, Handle graph, const Handle* dependencies,
                                   std::size_t count, const HostNode* parameters) {
  const int result = stub::record("cuGraphAddHostNode", graph, dependencies, count);
  *node = reinterpret_cast<void*>(0x62);
  if (result == 0) parameters->function(parameters->data);
  return result;
}

STUB_EXPORT int cuGraphInstantiateWithFlags(Handle* executable, Handle graph,
                                            unsigned long long flags) {
  const int result = stub::record("cuGraphInstantiateWithFlags", graph, flags);
  *executable = reinterpret_cast<void*>(0x63);
  return result;
}

STUB_EXPORT int cuGraphLaunch(Handle executable, Handle stream) {
  const int result = stub::record("cuGraphLaunch", executable, stream);
  return result;
}

STUB_EXPORT int cuGraphExecDestroy(Handle executable) {
  const int result = stub::record("cuGraphExecDestroy", executable);
  return result;
}

STUB_EXPORT int cuGraphDestroy(Handle graph) {
  const int result = stub::record("cuGraphDestroy", graph);
  return result;
}
