// Minimal prototypes of NVIDIA's driver API. NVIDIA's headers are not included on purpose: both
// vendors' headers cannot share a translation unit. Each name is the driver's, without "cu".
#pragma once

#include <cstddef>
#include <cstdint>

namespace forward::cuda {

using Address = unsigned long long;  // CUdeviceptr
using Handle = void*;                // CUcontext, CUstream, CUevent, CUmodule, CUfunction, CUgraph
using HostFunction = void (*)(void*);

struct IpcHandle {  // CUipcMemHandle and CUipcEventHandle, passed by value.
  char reserved[64];
};

struct Uuid {
  char bytes[16];
};

using MemoryHandle = unsigned long long;  // CUmemGenericAllocationHandle

struct MemoryLocation {  // CUmemLocation
  int type;
  int device;
};

struct AllocationProperties {  // CUmemAllocationProp
  int type;
  int handle_types;
  MemoryLocation location;
  void* windows_metadata;
  unsigned char flags[8];
};

struct AccessDescriptor {  // CUmemAccessDesc
  MemoryLocation location;
  int flags;
};

struct HostNode {  // CUDA_HOST_NODE_PARAMS
  HostFunction function;
  void* data;
};

/// The driver's entry points. A field is null if the installed driver lacks the symbol.
struct Driver {
  int (*init)(unsigned flags);
  int (*device_get_count)(int* count);
  int (*device_get)(int* device, int ordinal);
  int (*device_get_name)(char* name, int length, int device);
  int (*device_get_uuid)(Uuid* uuid, int device);
  int (*device_total_mem)(std::size_t* bytes, int device);
  int (*device_get_attribute)(int* value, int attribute, int device);
  int (*device_get_pci_bus_id)(char* id, int length, int device);
  int (*device_get_by_pci_bus_id)(int* device, const char* id);
  int (*device_can_access_peer)(int* yes, int device, int peer);
  int (*primary_retain)(Handle* context, int device);
  int (*primary_release)(int device);
  int (*primary_reset)(int device);
  int (*ctx_get_current)(Handle* context);
  int (*ctx_set_current)(Handle context);
  int (*ctx_get_device)(int* device);
  int (*ctx_synchronize)();
  int (*ctx_set_limit)(int limit, std::size_t value);
  int (*ctx_enable_peer)(Handle context, unsigned flags);
  int (*ctx_priority_range)(int* least, int* greatest);
  int (*mem_get_info)(std::size_t* free, std::size_t* total);
  int (*mem_alloc)(Address* pointer, std::size_t bytes);
  int (*mem_alloc_managed)(Address* pointer, std::size_t bytes, unsigned flags);
  int (*mem_free)(Address pointer);
  int (*mem_host_alloc)(void** pointer, std::size_t bytes, unsigned flags);
  int (*mem_free_host)(void* pointer);
  int (*mem_host_register)(void* pointer, std::size_t bytes, unsigned flags);
  int (*mem_host_unregister)(void* pointer);
  int (*mem_host_get_device_pointer)(Address* device, void* host, unsigned flags);
  int (*mem_get_address_range)(Address* base, std::size_t* bytes, Address pointer);
  int (*pointer_get_attribute)(void* data, int attribute, Address pointer);
  int (*ipc_get_mem)(IpcHandle* handle, Address pointer);
  int (*ipc_open_mem)(Address* pointer, IpcHandle handle, unsigned flags);
  int (*ipc_close_mem)(Address pointer);
  int (*ipc_get_event)(IpcHandle* handle, Handle event);
  int (*ipc_open_event)(Handle* event, IpcHandle handle);
  int (*mem_get_granularity)(std::size_t* bytes, const AllocationProperties* properties,
                             int option);
  int (*mem_address_reserve)(Address* pointer, std::size_t bytes, std::size_t alignment,
                             Address wanted, unsigned long long flags);
  int (*mem_address_free)(Address pointer, std::size_t bytes);
  int (*mem_create)(MemoryHandle* handle, std::size_t bytes, const AllocationProperties* properties,
                    unsigned long long flags);
  int (*mem_release)(MemoryHandle handle);
  int (*mem_map)(Address pointer, std::size_t bytes, std::size_t offset, MemoryHandle handle,
                 unsigned long long flags);
  int (*mem_unmap)(Address pointer, std::size_t bytes);
  int (*mem_set_access)(Address pointer, std::size_t bytes, const AccessDescriptor* access,
                        std::size_t count);
  int (*memcpy)(Address to, Address from, std::size_t bytes);
  int (*memcpy_async)(Address to, Address from, std::size_t bytes, Handle stream);
  int (*memset_d8)(Address to, unsigned char value, std::size_t bytes);
  int (*memset_d8_async)(Address to, unsigned char value, std::size_t bytes, Handle stream);
  int (*stream_create)(Handle* stream, unsigned flags, int priority);
  int (*stream_destroy)(Handle stream);
  int (*stream_synchronize)(Handle stream);
  int (*stream_query)(Handle stream);
  int (*stream_wait_event)(Handle stream, Handle event, unsigned flags);
  int (*stream_wait_value32)(Handle stream, Address at, std::uint32_t value, unsigned flags);
  int (*stream_wait_value64)(Handle stream, Address at, std::uint64_t value, unsigned flags);
  int (*stream_write_value32)(Handle stream, Address at, std::uint32_t value, unsigned flags);
  int (*stream_write_value64)(Handle stream, Address at, std::uint64_t value, unsigned flags);
  int (*stream_is_capturing)(Handle stream, int* status);
  int (*stream_begin_capture)(Handle stream, int mode);
  int (*stream_end_capture)(Handle stream, Handle* graph);
  int (*stream_get_capture_info)(Handle stream, int* status, std::uint64_t* id, Handle* graph,
                                 const Handle** dependencies, std::size_t* count);
  int (*exchange_capture_mode)(int* mode);
  int (*event_create)(Handle* event, unsigned flags);
  int (*event_destroy)(Handle event);
  int (*event_record)(Handle event, Handle stream);
  int (*event_query)(Handle event);
  int (*event_synchronize)(Handle event);
  int (*event_elapsed_time)(float* milliseconds, Handle start, Handle stop);
  int (*launch_host_function)(Handle stream, HostFunction function, void* data);
  int (*launch_kernel)(Handle function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                       unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                       Handle stream, void** parameters, void** extra);
  int (*module_load_data)(Handle* module, const void* image);
  int (*module_unload)(Handle module);
  int (*module_get_function)(Handle* function, Handle module, const char* name);
  int (*function_get_attribute)(int* value, int attribute, Handle function);
  int (*function_set_attribute)(Handle function, int attribute, int value);
  int (*graph_add_host_node)(Handle* node, Handle graph, const Handle* dependencies,
                             std::size_t count, const HostNode* parameters);
  int (*graph_instantiate)(Handle* executable, Handle graph, unsigned long long flags);
  int (*graph_launch)(Handle executable, Handle stream);
  int (*graph_exec_destroy)(Handle executable);
  int (*graph_destroy)(Handle graph);
};

/// Returns the driver, or null if libcuda.so.1 (or the path in FORWARD_CUDA) does not load or
/// lacks an entry point. Thread-safe.
[[nodiscard]] const Driver* driver();

/// Converts a pointer to the driver's integer address.
[[nodiscard]] inline Address address(const void* pointer) {
  return reinterpret_cast<Address>(pointer);
}

}  // namespace forward::cuda
