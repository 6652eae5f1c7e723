/* One table over the runtimes of two vendors: CUDA's (libcudart) and AMD's HIP (libamdhip64).
 *
 * A program that holds a table calls either runtime by the same names, with the same numbers and
 * structs, and needs no vendor header or library to build. The entries are the 66 of HetCCL's
 * runtime abstraction (TACC: arXiv, "HetCCL", appendix C, figure 10), in its order.
 *
 * Error codes, flags and attributes of this header are hetccl's own; entries translate them to the
 * vendor's. An entry is a null pointer if the vendor lacks it (ext_malloc_with_flags is AMD's
 * alone), or if the loaded version of the library does. All functions here are thread-safe; entries
 * are as thread-safe as the vendor's own functions.
 *
 * Licensed under the Apache License, Version 2.0. */
#ifndef HETCCL_RUNTIME_H_
#define HETCCL_RUNTIME_H_

#include <stddef.h>
#include <stdint.h>

#include "hetccl/hetccl.h"

#ifdef __cplusplus
extern "C" {
#endif

/** The platform whose runtime a table calls. */
typedef enum {
  hetcclRuntimePlatformNone = 0,
  hetcclRuntimePlatformCuda = 1, /**< NVIDIA's libcudart */
  hetcclRuntimePlatformHip = 2   /**< AMD's libamdhip64 */
} hetcclRuntimePlatform_t;

/** Results of entries. Numbers on which both vendors agree are theirs. A vendor's error without a
 * name here is hetcclRuntimeErrorOther plus the vendor's number. */
typedef enum {
  hetcclRuntimeSuccess = 0,
  hetcclRuntimeErrorInvalidValue = 1,
  hetcclRuntimeErrorMemoryAllocation = 2,
  hetcclRuntimeErrorInitialization = 3,
  hetcclRuntimeErrorUnloading = 4,
  hetcclRuntimeErrorInvalidConfiguration = 9,
  hetcclRuntimeErrorInvalidPitch = 12,
  hetcclRuntimeErrorInvalidSymbol = 13,
  hetcclRuntimeErrorInvalidDevicePointer = 17,
  hetcclRuntimeErrorInvalidTexture = 18,           /**< HIP's number is 912 */
  hetcclRuntimeErrorInvalidChannelDescriptor = 20, /**< HIP's number is 911 */
  hetcclRuntimeErrorInvalidMemcpyDirection = 21,
  hetcclRuntimeErrorInsufficientDriver = 35,
  hetcclRuntimeErrorMissingConfiguration = 52,
  hetcclRuntimeErrorPriorLaunchFailure = 53,
  hetcclRuntimeErrorInvalidDeviceFunction = 98,
  hetcclRuntimeErrorNoDevice = 100,
  hetcclRuntimeErrorInvalidDevice = 101,
  hetcclRuntimeErrorInvalidImage = 200,
  hetcclRuntimeErrorInvalidContext = 201,
  hetcclRuntimeErrorAlreadyMapped = 208,
  hetcclRuntimeErrorNoKernelImage = 209,
  hetcclRuntimeErrorNotMapped = 211,
  hetcclRuntimeErrorEccUncorrectable = 214,
  hetcclRuntimeErrorUnsupportedLimit = 215,
  hetcclRuntimeErrorDeviceInUse = 216,
  hetcclRuntimeErrorPeerAccessUnsupported = 217,
  hetcclRuntimeErrorInvalidKernel = 218,
  hetcclRuntimeErrorInvalidSource = 300,
  hetcclRuntimeErrorFileNotFound = 301,
  hetcclRuntimeErrorSharedObjectSymbolNotFound = 302,
  hetcclRuntimeErrorSharedObjectInitFailed = 303,
  hetcclRuntimeErrorOperatingSystem = 304,
  hetcclRuntimeErrorInvalidHandle = 400,
  hetcclRuntimeErrorIllegalState = 401,
  hetcclRuntimeErrorNotFound = 500,
  hetcclRuntimeErrorNotReady = 600, /**< from stream_query and event_query: work is in flight */
  hetcclRuntimeErrorIllegalAddress = 700,
  hetcclRuntimeErrorLaunchOutOfResources = 701,
  hetcclRuntimeErrorLaunchTimeout = 702,
  hetcclRuntimeErrorPeerAccessAlreadyEnabled = 704,
  hetcclRuntimeErrorPeerAccessNotEnabled = 705,
  hetcclRuntimeErrorSetOnActiveProcess = 708,
  hetcclRuntimeErrorContextIsDestroyed = 709,
  hetcclRuntimeErrorAssert = 710,
  hetcclRuntimeErrorHostMemoryAlreadyRegistered = 712,
  hetcclRuntimeErrorHostMemoryNotRegistered = 713,
  hetcclRuntimeErrorLaunchFailure = 719,
  hetcclRuntimeErrorCooperativeLaunchTooLarge = 720,
  hetcclRuntimeErrorNotSupported = 801, /**< also if this vendor has no such flag or attribute */
  hetcclRuntimeErrorStreamCaptureUnsupported = 900,
  hetcclRuntimeErrorStreamCaptureInvalidated = 901,
  hetcclRuntimeErrorStreamCaptureMerge = 902,
  hetcclRuntimeErrorStreamCaptureUnmatched = 903,
  hetcclRuntimeErrorStreamCaptureUnjoined = 904,
  hetcclRuntimeErrorStreamCaptureIsolation = 905,
  hetcclRuntimeErrorStreamCaptureImplicit = 906,
  hetcclRuntimeErrorCapturedEvent = 907,
  hetcclRuntimeErrorStreamCaptureWrongThread = 908,
  hetcclRuntimeErrorGraphExecUpdateFailure = 910,
  hetcclRuntimeErrorUnknown = 999,
  hetcclRuntimeErrorOther = 1048576
} hetcclRuntimeError_t;

/** Attributes of a device. One that the platform lacks is hetcclRuntimeErrorNotSupported. */
typedef enum {
  hetcclRuntimeAttributeMaxThreadsPerBlock = 0,
  hetcclRuntimeAttributeMaxBlockDimX = 1,
  hetcclRuntimeAttributeMaxBlockDimY = 2,
  hetcclRuntimeAttributeMaxBlockDimZ = 3,
  hetcclRuntimeAttributeMaxGridDimX = 4,
  hetcclRuntimeAttributeMaxGridDimY = 5,
  hetcclRuntimeAttributeMaxGridDimZ = 6,
  hetcclRuntimeAttributeMaxSharedMemoryPerBlock = 7, /**< in bytes, as are all amounts of memory */
  hetcclRuntimeAttributeTotalConstantMemory = 8,
  hetcclRuntimeAttributeWarpSize = 9,
  hetcclRuntimeAttributeMaxPitch = 10,
  hetcclRuntimeAttributeMaxRegistersPerBlock = 11,
  hetcclRuntimeAttributeClockRate = 12, /**< kHz */
  hetcclRuntimeAttributeTextureAlignment = 13,
  hetcclRuntimeAttributeMultiprocessorCount = 14,
  hetcclRuntimeAttributeKernelTimeout = 15,
  hetcclRuntimeAttributeIntegrated = 16,
  hetcclRuntimeAttributeCanMapHostMemory = 17,
  hetcclRuntimeAttributeComputeMode = 18,
  hetcclRuntimeAttributeConcurrentKernels = 19,
  hetcclRuntimeAttributeEccEnabled = 20,
  hetcclRuntimeAttributePciBusId = 21,
  hetcclRuntimeAttributePciDeviceId = 22,
  hetcclRuntimeAttributePciDomainId = 23,
  hetcclRuntimeAttributeMemoryClockRate = 24, /**< kHz */
  hetcclRuntimeAttributeMemoryBusWidth = 25,  /**< bits */
  hetcclRuntimeAttributeL2CacheSize = 26,
  hetcclRuntimeAttributeMaxThreadsPerMultiprocessor = 27,
  hetcclRuntimeAttributeAsyncEngineCount = 28,
  hetcclRuntimeAttributeUnifiedAddressing = 29,
  hetcclRuntimeAttributeComputeCapabilityMajor = 30,
  hetcclRuntimeAttributeComputeCapabilityMinor = 31,
  hetcclRuntimeAttributeStreamPriorities = 32,
  hetcclRuntimeAttributeMaxSharedMemoryPerMultiprocessor = 33,
  hetcclRuntimeAttributeMaxRegistersPerMultiprocessor = 34,
  hetcclRuntimeAttributeManagedMemory = 35,
  hetcclRuntimeAttributeIsMultiGpuBoard = 36,
  hetcclRuntimeAttributeMultiGpuBoardGroup = 37,
  hetcclRuntimeAttributeHostNativeAtomics = 38,
  hetcclRuntimeAttributePageableMemoryAccess = 39,
  hetcclRuntimeAttributeConcurrentManagedAccess = 40,
  hetcclRuntimeAttributeComputePreemption = 41,
  hetcclRuntimeAttributeHostPointerForRegisteredMemory = 42,
  hetcclRuntimeAttributeCooperativeLaunch = 43,
  hetcclRuntimeAttributeMaxSharedMemoryPerBlockOptin = 44,
  hetcclRuntimeAttributeHostRegister = 45,
  hetcclRuntimeAttributePageableMemoryUsesHostPageTables = 46,
  hetcclRuntimeAttributeDirectManagedAccessFromHost = 47,
  hetcclRuntimeAttributeMaxBlocksPerMultiprocessor = 48,
  hetcclRuntimeAttributeMemoryPools = 49,
  hetcclRuntimeAttributeGpuDirectRdma = 50,          /**< CUDA */
  hetcclRuntimeAttributeLargeBar = 51,               /**< HIP */
  hetcclRuntimeAttributeStreamWaitValue = 52,        /**< HIP */
  hetcclRuntimeAttributeFineGrainedMemory = 53,      /**< HIP */
  hetcclRuntimeAttributeWallClockRate = 54,          /**< HIP; kHz */
  hetcclRuntimeAttributePhysicalMultiprocessors = 55 /**< HIP */
} hetcclRuntimeAttribute_t;

/** Source and destination of a copy. */
typedef enum {
  hetcclRuntimeMemcpyHostToHost = 0,
  hetcclRuntimeMemcpyHostToDevice = 1,
  hetcclRuntimeMemcpyDeviceToHost = 2,
  hetcclRuntimeMemcpyDeviceToDevice = 3,
  hetcclRuntimeMemcpyDefault = 4 /**< derived from the addresses */
} hetcclRuntimeMemcpyKind_t;

/** Flags of host_alloc and host_malloc. CUDA ignores the last three, since its pinned memory is
 * coherent. */
typedef enum {
  hetcclRuntimeHostPortable = 1,
  hetcclRuntimeHostMapped = 2,
  hetcclRuntimeHostWriteCombined = 4,
  hetcclRuntimeHostNumaUser = 8,
  hetcclRuntimeHostCoherent = 16,
  hetcclRuntimeHostNonCoherent = 32
} hetcclRuntimeHostFlag_t;

/** Flags of host_register. */
typedef enum {
  hetcclRuntimeRegisterPortable = 1,
  hetcclRuntimeRegisterMapped = 2,
  hetcclRuntimeRegisterIoMemory = 4,
  hetcclRuntimeRegisterReadOnly = 8,      /**< CUDA; NotSupported on HIP */
  hetcclRuntimeRegisterCoarseGrained = 16 /**< HIP; CUDA ignores it */
} hetcclRuntimeRegisterFlag_t;

/** The kind of memory that ext_malloc_with_flags allocates. */
typedef enum {
  hetcclRuntimeExtMallocDefault = 0,
  hetcclRuntimeExtMallocFineGrained = 1,
  hetcclRuntimeExtMallocSignal = 2,
  hetcclRuntimeExtMallocUncached = 3,
  hetcclRuntimeExtMallocContiguous = 4
} hetcclRuntimeExtMalloc_t;

/** Flags of malloc_managed. */
typedef enum {
  hetcclRuntimeAttachGlobal = 1,
  hetcclRuntimeAttachHost = 2
} hetcclRuntimeAttachFlag_t;

/** Flags of stream_create_with_flags. */
typedef enum {
  hetcclRuntimeStreamDefault = 0,
  hetcclRuntimeStreamNonBlocking = 1
} hetcclRuntimeStreamFlag_t;

/** Flags of event_create_with_flags. CUDA ignores the last. */
typedef enum {
  hetcclRuntimeEventBlockingSync = 1,
  hetcclRuntimeEventDisableTiming = 2,
  hetcclRuntimeEventInterprocess = 4,
  hetcclRuntimeEventDisableSystemFence = 8
} hetcclRuntimeEventFlag_t;

/** Flags of stream_wait_event. */
typedef enum {
  hetcclRuntimeEventWaitDefault = 0,
  hetcclRuntimeEventWaitExternal = 1
} hetcclRuntimeEventWaitFlag_t;

/** Flags of ipc_open_mem_handle. */
typedef enum { hetcclRuntimeIpcLazyEnablePeerAccess = 1 } hetcclRuntimeIpcFlag_t;

/** The calls that a capture forbids to other threads. */
typedef enum {
  hetcclRuntimeCaptureGlobal = 0,
  hetcclRuntimeCaptureThreadLocal = 1,
  hetcclRuntimeCaptureRelaxed = 2
} hetcclRuntimeCaptureMode_t;

/** State of a stream's capture. */
typedef enum {
  hetcclRuntimeCaptureNone = 0,
  hetcclRuntimeCaptureActive = 1,
  hetcclRuntimeCaptureInvalidated = 2
} hetcclRuntimeCaptureStatus_t;

/** Flags of graph_instantiate. */
typedef enum {
  hetcclRuntimeGraphAutoFreeOnLaunch = 1,
  hetcclRuntimeGraphUpload = 2,
  hetcclRuntimeGraphDeviceLaunch = 4,
  hetcclRuntimeGraphUseNodePriority = 8
} hetcclRuntimeGraphFlag_t;

/** A limit of the device. */
typedef enum {
  hetcclRuntimeLimitStackSize = 0,
  hetcclRuntimeLimitPrintfFifoSize = 1,
  hetcclRuntimeLimitMallocHeapSize = 2
} hetcclRuntimeLimit_t;

/** Attributes of a kernel for func_set_attribute. */
typedef enum {
  hetcclRuntimeFuncMaxDynamicSharedMemory = 0,
  hetcclRuntimeFuncSharedMemoryCarveout = 1
} hetcclRuntimeFuncAttribute_t;

/** Kinds of memory. */
typedef enum {
  hetcclRuntimeMemoryUnregistered = 0,
  hetcclRuntimeMemoryHost = 1,
  hetcclRuntimeMemoryDevice = 2,
  hetcclRuntimeMemoryManaged = 3,
  hetcclRuntimeMemoryOther = 4 /**< HIP's arrays and unified memory */
} hetcclRuntimeMemory_t;

/** An event of the vendor's runtime. A stream is a hetcclStream_t, which is the vendor's too. */
typedef struct hetcclRuntimeEvent* hetcclRuntimeEvent_t;
/** A graph of the vendor. */
typedef struct hetcclRuntimeGraph* hetcclRuntimeGraph_t;
/** A node of a graph. */
typedef struct hetcclRuntimeGraphNode* hetcclRuntimeGraphNode_t;
/** A graph that can be launched. */
typedef struct hetcclRuntimeGraphExec* hetcclRuntimeGraphExec_t;
/** A function that the runtime calls on a thread of its own. It must not call any entry. */
typedef void (*hetcclRuntimeHostFn_t)(void* context);

/** The size of a grid, in blocks, or of a block, in threads. */
typedef struct {
  unsigned int x;
  unsigned int y;
  unsigned int z;
} hetcclRuntimeDim3;

/** A handle by which another process opens a device's memory. */
typedef struct {
  char reserved[64];
} hetcclRuntimeIpcMemHandle_t;

/** The function and argument of a graph's host node. */
typedef struct {
  hetcclRuntimeHostFn_t fn;
  void* context;
} hetcclRuntimeHostNode_t;

/** A device, in fields that both vendors have. */
typedef struct {
  char name[256];
  char architecture[256]; /**< "sm_90", "gfx942:sramecc+:xnack-" */
  size_t total_memory;    /**< bytes */
  int compute_major;
  int compute_minor;
  int multiprocessors;
  int warp_size;
  int clock_rate; /**< kHz */
  int max_threads_per_block;
  int max_threads_per_multiprocessor;
  int max_registers_per_block;
  int max_shared_memory_per_block; /**< bytes */
  int l2_cache_size;               /**< bytes */
  int memory_bus_width;            /**< bits */
  int async_engines;
  int pci_domain;
  int pci_bus;
  int pci_device;
  int integrated;
  int managed_memory;
  int concurrent_kernels;
  int ecc_enabled;
} hetcclRuntimeDeviceProperties_t;

/** A kernel, in fields that both vendors have. */
typedef struct {
  size_t shared_bytes;
  size_t constant_bytes;
  size_t local_bytes;
  int max_threads_per_block;
  int registers;
  int binary_version;
  int max_dynamic_shared_bytes;
  int shared_memory_carveout; /**< percent; -1 is the default */
} hetcclRuntimeFuncAttributes_t;

/** A runtime's knowledge of an address. For unknown memory CUDA reports unregistered; HIP 6 returns
 * hetcclRuntimeErrorInvalidValue, which get_last_error then returns too. */
typedef struct {
  hetcclRuntimeMemory_t type;
  int device;
  void* device_pointer;
  void* host_pointer;
} hetcclRuntimePointerAttributes_t;

/** The runtime of one vendor. A table is made once per platform and process, never changes and is
 * never freed. Its entries are in the order of figure 10. */
typedef struct hetcclRuntime {
  size_t size; /**< size of this struct in the library: entries beyond it do not exist */
  hetcclRuntimePlatform_t platform;
  int version;              /**< major * 1000 + minor * 10: 13000, 6040; 0: unknown */
  const char* version_text; /**< "13.0"; "" if unknown */
  const char* path;         /**< of the library */

  hetcclResult_t (*get_available_platforms)(unsigned int* platforms);
  hetcclResult_t (*set_platform)(const char* platform, const struct hetcclRuntime** table);
  hetcclResult_t (*set_platform_auto)(const struct hetcclRuntime** table);
  hetcclResult_t (*get_platform)(hetcclRuntimePlatform_t* platform); /**< of this table */
  hetcclRuntimeError_t (*thread_exchange_stream_capture_mode)(hetcclRuntimeCaptureMode_t* mode);
  hetcclRuntimeError_t (*malloc)(void** memory, size_t bytes);
  hetcclRuntimeError_t (*malloc_host)(void** memory, size_t bytes);
  hetcclRuntimeError_t (*malloc_managed)(void** memory, size_t bytes, unsigned int attach_flags);
  hetcclRuntimeError_t (*host_alloc)(void** memory, size_t bytes, unsigned int host_flags);
  hetcclRuntimeError_t (*get_device)(int* device);
  hetcclRuntimeError_t (*set_device)(int device);
  const char* (*get_error_string)(hetcclRuntimeError_t error); /**< the vendor's text */
  hetcclRuntimeError_t (*get_last_error)(void);
  hetcclRuntimeError_t (*ext_malloc_with_flags)(void** memory, size_t bytes,
                                                hetcclRuntimeExtMalloc_t kind); /**< HIP */
  hetcclRuntimeError_t (*device_can_access_peer)(int* can, int device, int peer);
  hetcclRuntimeError_t (*free_host)(void* memory); /**< of malloc_host and host_alloc */
  hetcclRuntimeError_t (*device_get_attribute)(int* value, hetcclRuntimeAttribute_t attribute,
                                               int device);
  hetcclRuntimeError_t (*stream_create_with_flags)(hetcclStream_t* stream,
                                                   unsigned int stream_flags);
  hetcclRuntimeError_t (*memcpy)(void* to, const void* from, size_t bytes,
                                 hetcclRuntimeMemcpyKind_t kind);
  hetcclRuntimeError_t (*memcpy_async)(void* to, const void* from, size_t bytes,
                                       hetcclRuntimeMemcpyKind_t kind, hetcclStream_t stream);
  hetcclRuntimeError_t (*free)(void* memory);
  hetcclRuntimeError_t (*memset)(void* memory, int byte, size_t bytes);
  hetcclRuntimeError_t (*memset_async)(void* memory, int byte, size_t bytes, hetcclStream_t stream);
  hetcclRuntimeError_t (*stream_query)(hetcclStream_t stream);
  hetcclRuntimeError_t (*stream_synchronize)(hetcclStream_t stream);
  hetcclRuntimeError_t (*stream_destroy)(hetcclStream_t stream);
  hetcclRuntimeError_t (*event_create)(hetcclRuntimeEvent_t* event);
  hetcclRuntimeError_t (*event_create_with_flags)(hetcclRuntimeEvent_t* event,
                                                  unsigned int event_flags);
  hetcclRuntimeError_t (*event_query)(hetcclRuntimeEvent_t event);
  hetcclRuntimeError_t (*event_record)(hetcclRuntimeEvent_t event, hetcclStream_t stream);
  hetcclRuntimeError_t (*stream_wait_event)(hetcclStream_t stream, hetcclRuntimeEvent_t event,
                                            unsigned int event_wait_flags);
  hetcclRuntimeError_t (*event_destroy)(hetcclRuntimeEvent_t event);
  hetcclRuntimeError_t (*launch_host_func)(hetcclStream_t stream, hetcclRuntimeHostFn_t fn,
                                           void* context);
  hetcclRuntimeError_t (*ipc_open_mem_handle)(void** memory, hetcclRuntimeIpcMemHandle_t handle,
                                              unsigned int ipc_flags);
  hetcclRuntimeError_t (*ipc_close_mem_handle)(void* memory);
  hetcclRuntimeError_t (*ipc_get_mem_handle)(hetcclRuntimeIpcMemHandle_t* handle, void* memory);
  hetcclRuntimeError_t (*host_register)(void* memory, size_t bytes, unsigned int register_flags);
  hetcclRuntimeError_t (*host_unregister)(void* memory);
  hetcclRuntimeError_t (*host_get_device_pointer)(void** device_address, void* host_address,
                                                  unsigned int zero);
  hetcclRuntimeError_t (*device_get_pci_bus_id)(char* bus_id, int bytes, int device);
  hetcclRuntimeError_t (*get_device_properties)(hetcclRuntimeDeviceProperties_t* properties,
                                                int device);
  hetcclRuntimeError_t (*device_get_by_pci_bus_id)(int* device, const char* bus_id);
  hetcclRuntimeError_t (*device_enable_peer_access)(int peer, unsigned int zero);
  hetcclRuntimeError_t (*get_device_count)(int* count);
  hetcclRuntimeError_t (*func_set_attribute)(const void* kernel,
                                             hetcclRuntimeFuncAttribute_t attribute, int value);
  hetcclRuntimeError_t (*func_get_attributes)(hetcclRuntimeFuncAttributes_t* attributes,
                                              const void* kernel);
  hetcclRuntimeError_t (*ext_launch_kernel)(const void* kernel, hetcclRuntimeDim3 grid,
                                            hetcclRuntimeDim3 block, void** arguments,
                                            size_t shared_bytes, hetcclStream_t stream,
                                            hetcclRuntimeEvent_t start, hetcclRuntimeEvent_t stop,
                                            int any_order); /**< HIP */
  hetcclRuntimeError_t (*launch_kernel)(const void* kernel, hetcclRuntimeDim3 grid,
                                        hetcclRuntimeDim3 block, void** arguments,
                                        size_t shared_bytes, hetcclStream_t stream);
  hetcclRuntimeError_t (*device_set_limit)(hetcclRuntimeLimit_t limit, size_t value);
  hetcclRuntimeError_t (*stream_get_capture_info_v2)(
      hetcclStream_t stream, hetcclRuntimeCaptureStatus_t* status, unsigned long long* id,
      hetcclRuntimeGraph_t* graph, const hetcclRuntimeGraphNode_t** dependencies, size_t* count);
  hetcclRuntimeError_t (*graph_add_host_node)(hetcclRuntimeGraphNode_t* node,
                                              hetcclRuntimeGraph_t graph,
                                              const hetcclRuntimeGraphNode_t* dependencies,
                                              size_t count, const hetcclRuntimeHostNode_t* host);
  hetcclRuntimeError_t (*graph_instantiate)(hetcclRuntimeGraphExec_t* exec,
                                            hetcclRuntimeGraph_t graph,
                                            unsigned long long graph_flags);
  hetcclRuntimeError_t (*graph_launch)(hetcclRuntimeGraphExec_t exec, hetcclStream_t stream);
  hetcclRuntimeError_t (*graph_exec_destroy)(hetcclRuntimeGraphExec_t exec);
  hetcclRuntimeError_t (*graph_destroy)(hetcclRuntimeGraph_t graph);
  hetcclRuntimeError_t (*device_synchronize)(void);
  hetcclRuntimeError_t (*stream_begin_capture)(hetcclStream_t stream,
                                               hetcclRuntimeCaptureMode_t mode);
  hetcclRuntimeError_t (*stream_end_capture)(hetcclStream_t stream, hetcclRuntimeGraph_t* graph);
  hetcclRuntimeError_t (*device_reset)(void);
  hetcclRuntimeError_t (*pointer_get_attributes)(hetcclRuntimePointerAttributes_t* attributes,
                                                 const void* memory);
  hetcclRuntimeError_t (*ext_stream_create_with_cu_mask)(hetcclStream_t* stream, uint32_t words,
                                                         const uint32_t* mask); /**< HIP */
  hetcclRuntimeError_t (*stream_create)(hetcclStream_t* stream);
  hetcclRuntimeError_t (*ext_get_link_type_and_hop_count)(int device, int peer, uint32_t* type,
                                                          uint32_t* hops); /**< HIP, HSA's types */
  hetcclRuntimeError_t (*host_malloc)(void** memory, size_t bytes, unsigned int host_flags);
  hetcclRuntimeError_t (*host_free)(void* memory); /**< of host_malloc */
  hetcclRuntimeError_t (*event_elapsed_time)(float* milliseconds, hetcclRuntimeEvent_t start,
                                             hetcclRuntimeEvent_t stop);
} hetcclRuntime;

/** One of the 66 entries, and the vendor's function that it calls in a table. */
typedef struct {
  const char* name;   /**< "memcpy_async" */
  const char* symbol; /**< "hipMemcpyAsync"; NULL: the vendor has none, or hetccl itself answers */
  int available;      /**< 0: the entry is a null pointer in this table */
} hetcclRuntimeEntry_t;

/** Returns the table of a platform; loads its library if necessary.
 *
 * `platform` is "cuda" or "hip". NULL or "" takes HETCCL_RUNTIME; without that setting, the first
 * of these that shows a device: the runtime that the process has loaded, CUDA, HIP. `path` is the
 * library's; NULL takes the process's own copy, else the usual names (HETCCL_HIP_LIBRARY first). If
 * `platform` names a platform, it need not have a device.
 *
 * hetcclUnsupported if there is no such library, or only a HIP older than 6;
 * hetcclGetLastError(NULL) lists what was tried. hetcclInvalidUsage if the platform's table is
 * already that of another library. */
HETCCL_API hetcclResult_t hetcclRuntimeLoad(const char* platform, const char* path,
                                            const hetcclRuntime** table);
/** Gets the platforms whose runtime can be loaded and shows a device, as a set of bits 1 <<
 * platform. The runtimes stay loaded; a later hetcclRuntimeLoad may still choose another library.
 */
HETCCL_API hetcclResult_t hetcclRuntimeGetAvailable(unsigned int* platforms);
/** Gets entry `index` of figure 10, from 0 to 65. */
HETCCL_API hetcclResult_t hetcclRuntimeGetEntry(const hetcclRuntime* table, int index,
                                                hetcclRuntimeEntry_t* entry);
/** Lists the entries that the table lacks, separated by commas; "" if it lacks none. The text lives
 * as long as the table. */
HETCCL_API hetcclResult_t hetcclRuntimeGetMissing(const hetcclRuntime* table, const char** names);

#ifdef __cplusplus
}
#endif

#endif
