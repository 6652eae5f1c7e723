// The 66 entries of the table, and the function of either vendor for each: the only place that
// names them, in the order of HetCCL's figure 10 (appendix C) and of the header's struct.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

#include "hetccl/runtime.h"

namespace hetccl::runtime {

/// `cuda` and `hip` are null if the vendor has no such function.
struct Entry {
  std::string_view name;  ///< of the member in hetcclRuntime
  size_t slot;            ///< its offset
  const char* cuda = nullptr;
  const char* hip = nullptr;
};

/// hetccl answers the first four itself.
inline constexpr std::array kEntries = {
    Entry{"get_available_platforms", offsetof(hetcclRuntime, get_available_platforms)},
    Entry{"set_platform", offsetof(hetcclRuntime, set_platform)},
    Entry{"set_platform_auto", offsetof(hetcclRuntime, set_platform_auto)},
    Entry{"get_platform", offsetof(hetcclRuntime, get_platform)},
    Entry{"thread_exchange_stream_capture_mode",
          offsetof(hetcclRuntime, thread_exchange_stream_capture_mode),
          "cudaThreadExchangeStreamCaptureMode", "hipThreadExchangeStreamCaptureMode"},
    Entry{"malloc", offsetof(hetcclRuntime, malloc), "cudaMalloc", "hipMalloc"},
    Entry{"malloc_host", offsetof(hetcclRuntime, malloc_host), "cudaMallocHost", "hipMallocHost"},
    Entry{"malloc_managed", offsetof(hetcclRuntime, malloc_managed), "cudaMallocManaged",
          "hipMallocManaged"},
    Entry{"host_alloc", offsetof(hetcclRuntime, host_alloc), "cudaHostAlloc", "hipHostAlloc"},
    Entry{"get_device", offsetof(hetcclRuntime, get_device), "cudaGetDevice", "hipGetDevice"},
    Entry{"set_device", offsetof(hetcclRuntime, set_device), "cudaSetDevice", "hipSetDevice"},
    Entry{"get_error_string", offsetof(hetcclRuntime, get_error_string), "cudaGetErrorString",
          "hipGetErrorString"},
    Entry{"get_last_error", offsetof(hetcclRuntime, get_last_error), "cudaGetLastError",
          "hipGetLastError"},
    Entry{"ext_malloc_with_flags", offsetof(hetcclRuntime, ext_malloc_with_flags), nullptr,
          "hipExtMallocWithFlags"},
    Entry{"device_can_access_peer", offsetof(hetcclRuntime, device_can_access_peer),
          "cudaDeviceCanAccessPeer", "hipDeviceCanAccessPeer"},
    Entry{"free_host", offsetof(hetcclRuntime, free_host), "cudaFreeHost", "hipFreeHost"},
    Entry{"device_get_attribute", offsetof(hetcclRuntime, device_get_attribute),
          "cudaDeviceGetAttribute", "hipDeviceGetAttribute"},
    Entry{"stream_create_with_flags", offsetof(hetcclRuntime, stream_create_with_flags),
          "cudaStreamCreateWithFlags", "hipStreamCreateWithFlags"},
    Entry{"memcpy", offsetof(hetcclRuntime, memcpy), "cudaMemcpy", "hipMemcpy"},
    Entry{"memcpy_async", offsetof(hetcclRuntime, memcpy_async), "cudaMemcpyAsync",
          "hipMemcpyAsync"},
    Entry{"free", offsetof(hetcclRuntime, free), "cudaFree", "hipFree"},
    Entry{"memset", offsetof(hetcclRuntime, memset), "cudaMemset", "hipMemset"},
    Entry{"memset_async", offsetof(hetcclRuntime, memset_async), "cudaMemsetAsync",
          "hipMemsetAsync"},
    Entry{"stream_query", offsetof(hetcclRuntime, stream_query), "cudaStreamQuery",
          "hipStreamQuery"},
    Entry{"stream_synchronize", offsetof(hetcclRuntime, stream_synchronize),
          "cudaStreamSynchronize", "hipStreamSynchronize"},
    Entry{"stream_destroy", offsetof(hetcclRuntime, stream_destroy), "cudaStreamDestroy",
          "hipStreamDestroy"},
    Entry{"event_create", offsetof(hetcclRuntime, event_create), "cudaEventCreate",
          "hipEventCreate"},
    Entry{"event_create_with_flags", offsetof(hetcclRuntime, event_create_with_flags),
          "cudaEventCreateWithFlags", "hipEventCreateWithFlags"},
    Entry{"event_query", offsetof(hetcclRuntime, event_query), "cudaEventQuery", "hipEventQuery"},
    Entry{"event_record", offsetof(hetcclRuntime, event_record), "cudaEventRecord",
          "hipEventRecord"},
    Entry{"stream_wait_event", offsetof(hetcclRuntime, stream_wait_event), "cudaStreamWaitEvent",
          "hipStreamWaitEvent"},
    Entry{"event_destroy", offsetof(hetcclRuntime, event_destroy), "cudaEventDestroy",
          "hipEventDestroy"},
    Entry{"launch_host_func", offsetof(hetcclRuntime, launch_host_func), "cudaLaunchHostFunc",
          "hipLaunchHostFunc"},
    Entry{"ipc_open_mem_handle", offsetof(hetcclRuntime, ipc_open_mem_handle),
          "cudaIpcOpenMemHandle", "hipIpcOpenMemHandle"},
    Entry{"ipc_close_mem_handle", offsetof(hetcclRuntime, ipc_close_mem_handle),
          "cudaIpcCloseMemHandle", "hipIpcCloseMemHandle"},
    Entry{"ipc_get_mem_handle", offsetof(hetcclRuntime, ipc_get_mem_handle), "cudaIpcGetMemHandle",
          "hipIpcGetMemHandle"},
    Entry{"host_register", offsetof(hetcclRuntime, host_register), "cudaHostRegister",
          "hipHostRegister"},
    Entry{"host_unregister", offsetof(hetcclRuntime, host_unregister), "cudaHostUnregister",
          "hipHostUnregister"},
    Entry{"host_get_device_pointer", offsetof(hetcclRuntime, host_get_device_pointer),
          "cudaHostGetDevicePointer", "hipHostGetDevicePointer"},
    Entry{"device_get_pci_bus_id", offsetof(hetcclRuntime, device_get_pci_bus_id),
          "cudaDeviceGetPCIBusId", "hipDeviceGetPCIBusId"},
    Entry{"get_device_properties", offsetof(hetcclRuntime, get_device_properties),
          "cudaGetDeviceProperties", "hipGetDevicePropertiesR0600"},
    Entry{"device_get_by_pci_bus_id", offsetof(hetcclRuntime, device_get_by_pci_bus_id),
          "cudaDeviceGetByPCIBusId", "hipDeviceGetByPCIBusId"},
    Entry{"device_enable_peer_access", offsetof(hetcclRuntime, device_enable_peer_access),
          "cudaDeviceEnablePeerAccess", "hipDeviceEnablePeerAccess"},
    Entry{"get_device_count", offsetof(hetcclRuntime, get_device_count), "cudaGetDeviceCount",
          "hipGetDeviceCount"},
    Entry{"func_set_attribute", offsetof(hetcclRuntime, func_set_attribute), "cudaFuncSetAttribute",
          "hipFuncSetAttribute"},
    Entry{"func_get_attributes", offsetof(hetcclRuntime, func_get_attributes),
          "cudaFuncGetAttributes", "hipFuncGetAttributes"},
    Entry{"ext_launch_kernel", offsetof(hetcclRuntime, ext_launch_kernel), nullptr,
          "hipExtLaunchKernel"},
    Entry{"launch_kernel", offsetof(hetcclRuntime, launch_kernel), "cudaLaunchKernel",
          "hipLaunchKernel"},
    Entry{"device_set_limit", offsetof(hetcclRuntime, device_set_limit), "cudaDeviceSetLimit",
          "hipDeviceSetLimit"},
    Entry{"stream_get_capture_info_v2", offsetof(hetcclRuntime, stream_get_capture_info_v2),
          "cudaStreamGetCaptureInfo_v2", "hipStreamGetCaptureInfo_v2"},
    Entry{"graph_add_host_node", offsetof(hetcclRuntime, graph_add_host_node),
          "cudaGraphAddHostNode", "hipGraphAddHostNode"},
    Entry{"graph_instantiate", offsetof(hetcclRuntime, graph_instantiate),
          "cudaGraphInstantiateWithFlags", "hipGraphInstantiateWithFlags"},
    Entry{"graph_launch", offsetof(hetcclRuntime, graph_launch), "cudaGraphLaunch",
          "hipGraphLaunch"},
    Entry{"graph_exec_destroy", offsetof(hetcclRuntime, graph_exec_destroy), "cudaGraphExecDestroy",
          "hipGraphExecDestroy"},
    Entry{"graph_destroy", offsetof(hetcclRuntime, graph_destroy), "cudaGraphDestroy",
          "hipGraphDestroy"},
    Entry{"device_synchronize", offsetof(hetcclRuntime, device_synchronize),
          "cudaDeviceSynchronize", "hipDeviceSynchronize"},
    Entry{"stream_begin_capture", offsetof(hetcclRuntime, stream_begin_capture),
          "cudaStreamBeginCapture", "hipStreamBeginCapture"},
    Entry{"stream_end_capture", offsetof(hetcclRuntime, stream_end_capture), "cudaStreamEndCapture",
          "hipStreamEndCapture"},
    Entry{"device_reset", offsetof(hetcclRuntime, device_reset), "cudaDeviceReset",
          "hipDeviceReset"},
    Entry{"pointer_get_attributes", offsetof(hetcclRuntime, pointer_get_attributes),
          "cudaPointerGetAttributes", "hipPointerGetAttributes"},
    Entry{"ext_stream_create_with_cu_mask", offsetof(hetcclRuntime, ext_stream_create_with_cu_mask),
          nullptr, "hipExtStreamCreateWithCUMask"},
    Entry{"stream_create", offsetof(hetcclRuntime, stream_create), "cudaStreamCreate",
          "hipStreamCreate"},
    Entry{"ext_get_link_type_and_hop_count",
          offsetof(hetcclRuntime, ext_get_link_type_and_hop_count), nullptr,
          "hipExtGetLinkTypeAndHopCount"},
    Entry{"host_malloc", offsetof(hetcclRuntime, host_malloc), "cudaHostAlloc", "hipHostMalloc"},
    Entry{"host_free", offsetof(hetcclRuntime, host_free), "cudaFreeHost", "hipHostFree"},
    Entry{"event_elapsed_time", offsetof(hetcclRuntime, event_elapsed_time), "cudaEventElapsedTime",
          "hipEventElapsedTime"},
};
inline constexpr size_t kOwnEntries = 4;

/// Returns the index of the entry with this name; an unknown name does not compile.
consteval size_t entry(std::string_view name) {
  size_t index = 0;
  while (kEntries.at(index).name != name) ++index;
  return index;
}

}  // namespace hetccl::runtime
