#include "cuda/driver.h"

#include <cstdio>

#include "core/shared_object.h"

namespace forward::cuda {
namespace {

// Resolves symbols and remembers whether the driver lacks one of them.
class Resolver {
 public:
  explicit Resolver(const SharedObject& library) : library_(library) {}

  template <typename Function>
  void operator()(Function*& function, const char* name) {
    library_.resolve(function, name);
    if (function == nullptr) {
      std::fprintf(stderr, "forward: NVIDIA's driver has no %s\n", name);
      complete_ = false;
    }
  }

  [[nodiscard]] bool complete() const { return complete_; }

 private:
  const SharedObject& library_;
  bool complete_ = true;
};

void resolve_devices(Driver& driver, Resolver& resolve) {
  resolve(driver.init, "cuInit");
  resolve(driver.device_get_count, "cuDeviceGetCount");
  resolve(driver.device_get, "cuDeviceGet");
  resolve(driver.device_get_name, "cuDeviceGetName");
  resolve(driver.device_get_uuid, "cuDeviceGetUuid_v2");
  resolve(driver.device_total_mem, "cuDeviceTotalMem_v2");
  resolve(driver.device_get_attribute, "cuDeviceGetAttribute");
  resolve(driver.device_get_pci_bus_id, "cuDeviceGetPCIBusId");
  resolve(driver.device_get_by_pci_bus_id, "cuDeviceGetByPCIBusId");
  resolve(driver.device_can_access_peer, "cuDeviceCanAccessPeer");
  resolve(driver.primary_retain, "cuDevicePrimaryCtxRetain");
  resolve(driver.primary_release, "cuDevicePrimaryCtxRelease_v2");
  resolve(driver.primary_reset, "cuDevicePrimaryCtxReset_v2");
  resolve(driver.ctx_get_current, "cuCtxGetCurrent");
  resolve(driver.ctx_set_current, "cuCtxSetCurrent");
  resolve(driver.ctx_get_device, "cuCtxGetDevice");
  resolve(driver.ctx_synchronize, "cuCtxSynchronize");
  resolve(driver.ctx_set_limit, "cuCtxSetLimit");
  resolve(driver.ctx_enable_peer, "cuCtxEnablePeerAccess");
  resolve(driver.ctx_priority_range, "cuCtxGetStreamPriorityRange");
}

void resolve_memory(Driver& driver, Resolver& resolve) {
  resolve(driver.mem_get_info, "cuMemGetInfo_v2");
  resolve(driver.mem_alloc, "cuMemAlloc_v2");
  resolve(driver.mem_alloc_managed, "cuMemAllocManaged");
  resolve(driver.mem_free, "cuMemFree_v2");
  resolve(driver.mem_host_alloc, "cuMemHostAlloc");
  resolve(driver.mem_free_host, "cuMemFreeHost");
  resolve(driver.mem_host_register, "cuMemHostRegister_v2");
  resolve(driver.mem_host_unregister, "cuMemHostUnregister");
  resolve(driver.mem_host_get_device_pointer, "cuMemHostGetDevicePointer_v2");
  resolve(driver.mem_get_address_range, "cuMemGetAddressRange_v2");
  resolve(driver.pointer_get_attribute, "cuPointerGetAttribute");
  resolve(driver.ipc_get_mem, "cuIpcGetMemHandle");
  resolve(driver.ipc_open_mem, "cuIpcOpenMemHandle_v2");
  resolve(driver.ipc_close_mem, "cuIpcCloseMemHandle");
  resolve(driver.ipc_get_event, "cuIpcGetEventHandle");
  resolve(driver.ipc_open_event, "cuIpcOpenEventHandle");
  resolve(driver.memcpy, "cuMemcpy");
  resolve(driver.memcpy_async, "cuMemcpyAsync");
  resolve(driver.memset_d8, "cuMemsetD8_v2");
  resolve(driver.memset_d8_async, "cuMemsetD8Async");
}

void resolve_virtual_memory(Driver& driver, Resolver& resolve) {
  resolve(driver.mem_get_granularity, "cuMemGetAllocationGranularity");
  resolve(driver.mem_address_reserve, "cuMemAddressReserve");
  resolve(driver.mem_address_free, "cuMemAddressFree");
  resolve(driver.mem_create, "cuMemCreate");
  resolve(driver.mem_release, "cuMemRelease");
  resolve(driver.mem_map, "cuMemMap");
  resolve(driver.mem_unmap, "cuMemUnmap");
  resolve(driver.mem_set_access, "cuMemSetAccess");
}

void resolve_streams(Driver& driver, Resolver& resolve) {
  resolve(driver.stream_create, "cuStreamCreateWithPriority");
  resolve(driver.stream_destroy, "cuStreamDestroy_v2");
  resolve(driver.stream_synchronize, "cuStreamSynchronize");
  resolve(driver.stream_query, "cuStreamQuery");
  resolve(driver.stream_wait_event, "cuStreamWaitEvent");
  resolve(driver.stream_wait_value32, "cuStreamWaitValue32_v2");
  resolve(driver.stream_wait_value64, "cuStreamWaitValue64_v2");
  resolve(driver.stream_write_value32, "cuStreamWriteValue32_v2");
  resolve(driver.stream_write_value64, "cuStreamWriteValue64_v2");
  resolve(driver.stream_is_capturing, "cuStreamIsCapturing");
  resolve(driver.stream_begin_capture, "cuStreamBeginCapture_v2");
  resolve(driver.stream_end_capture, "cuStreamEndCapture");
  resolve(driver.stream_get_capture_info, "cuStreamGetCaptureInfo_v2");
  resolve(driver.exchange_capture_mode, "cuThreadExchangeStreamCaptureMode");
}

void resolve_execution(Driver& driver, Resolver& resolve) {
  resolve(driver.event_create, "cuEventCreate");
  resolve(driver.event_destroy, "cuEventDestroy_v2");
  resolve(driver.event_record, "cuEventRecord");
  resolve(driver.event_query, "cuEventQuery");
  resolve(driver.event_synchronize, "cuEventSynchronize");
  resolve(driver.event_elapsed_time, "cuEventElapsedTime");
  resolve(driver.launch_host_function, "cuLaunchHostFunc");
  resolve(driver.launch_kernel, "cuLaunchKernel");
  resolve(driver.module_load_data, "cuModuleLoadData");
  resolve(driver.module_unload, "cuModuleUnload");
  resolve(driver.module_get_function, "cuModuleGetFunction");
  resolve(driver.function_get_attribute, "cuFuncGetAttribute");
  resolve(driver.function_set_attribute, "cuFuncSetAttribute");
  resolve(driver.graph_add_host_node, "cuGraphAddHostNode");
  resolve(driver.graph_instantiate, "cuGraphInstantiateWithFlags");
  resolve(driver.graph_launch, "cuGraphLaunch");
  resolve(driver.graph_exec_destroy, "cuGraphExecDestroy");
  resolve(driver.graph_destroy, "cuGraphDestroy");
}

const Driver* load() {
  const SharedObject library("FORWARD_CUDA", "libcuda.so.1");
  if (!library.loaded()) return nullptr;
  static Driver driver;
  Resolver resolve(library);
  resolve_devices(driver, resolve);
  resolve_memory(driver, resolve);
  resolve_virtual_memory(driver, resolve);
  resolve_streams(driver, resolve);
  resolve_execution(driver, resolve);
  return resolve.complete() ? &driver : nullptr;
}

}  // namespace

const Driver* driver() {
  static const Driver* instance = load();
  return instance;
}

}  // namespace forward::cuda
