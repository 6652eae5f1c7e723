// The binary interface of NCCL's net plug-ins, versions 8 to 12, declared here so that building
// needs nothing of NCCL. Fields have the same places in every version; functions and properties
// differ. Each table of a plug-in ends with functions that this transport neither calls nor
// declares. tests/ncclnet/abi_test.cc compares sizes and offsets with those of NVIDIA's headers.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hetccl::transport::ncclnet::abi {

enum : int {
  kSuccess,
  kUnhandledCudaError,
  kSystemError,
  kInternalError,
  kInvalidArgument,
  kInvalidUsage,
  kRemoteError
};

/// The bits of Properties::pointers. A registration has one of them as its type.
enum : int { kPointerHost = 1, kPointerCuda = 2, kPointerDmaBuf = 4 };

enum : int { kLogNone, kLogVersion, kLogWarn, kLogInfo, kLogAbort, kLogTrace };

/// The length of a handle, which the listener makes and the connecting rank needs.
inline constexpr size_t kHandleBytes = 128;
/// Requests that may be outstanding on one connection.
inline constexpr size_t kMaxRequests = 32;

// NOLINTBEGIN(google-runtime-int): the interface has these types
using Logger = void (*)(int level, unsigned long subsystems, const char* file, int line,
                        const char* format, ...);
// NOLINTEND(google-runtime-int)
using Profiler = int (*)(void** event, int type, void* parent, int64_t plugin, void* data);

struct CommConfig {
  int traffic_class;  ///< -1: the plug-in's default
};

struct PropertiesV8 {
  char* name;
  char* pci_path;
  uint64_t guid;
  int pointers, registers_globally;
  int mbps, port;
  float latency;  ///< microseconds
  int max_comms, max_receives, offload_type, offload_version;
};

/// `devices` has `room` entries.
template <size_t room>
struct PropertiesV9Of {
  char* name;
  char* pci_path;
  uint64_t guid;
  int pointers, registers_globally, force_flush;
  int mbps, port;
  float latency;
  int max_comms, max_receives, offload_type, offload_version;
  int n_devices;
  int devices[room];
  size_t max_bytes, max_collective_bytes;
};
using PropertiesV9 = PropertiesV9Of<4>;

struct PropertiesV11 {
  PropertiesV9 common;
  int max_multi_request;
};

struct PropertiesV12 {
  PropertiesV9Of<8> common;
  int max_multi_request;
  int16_t rail, plane;
};

struct V8 {
  static constexpr int kNumber = 8;
  using Size = int;
  using Properties = PropertiesV8;
  using Init = int (*)(Logger);
  using Listen = int (*)(int device, void* handle, void** listener);
  using Connect = int (*)(int device, void* handle, void** sender, void** offload);
  using Send = int (*)(void* sender, void* data, int bytes, int tag, void* region, void** request);
  using Receive = int (*)(void* receiver, int n, void** data, int* bytes, int* tags, void** regions,
                          void** request);
};

struct V9 : V8 {
  static constexpr int kNumber = 9;
  using Size = size_t;
  using Properties = PropertiesV9;
  using Send = int (*)(void* sender, void* data, size_t bytes, int tag, void* region,
                       void** request);
  using Receive = int (*)(void* receiver, int n, void** data, size_t* bytes, int* tags,
                          void** regions, void** request);
};

struct V10 : V9 {
  static constexpr int kNumber = 10;
  using Init = int (*)(Logger, Profiler);
  using Connect = int (*)(int device, CommConfig* config, void* handle, void** sender,
                          void** offload);
  using Send = int (*)(void* sender, void* data, size_t bytes, int tag, void* region, void* event,
                       void** request);
  using Receive = int (*)(void* receiver, int n, void** data, size_t* bytes, int* tags,
                          void** regions, void** events, void** request);
};

struct V11 : V10 {
  static constexpr int kNumber = 11;
  using Properties = PropertiesV11;
  using Init = int (*)(void** context, uint64_t communicator, CommConfig* config, Logger, Profiler);
  using Listen = int (*)(void* context, int device, void* handle, void** listener);
  using Connect = int (*)(void* context, int device, void* handle, void** sender, void** offload);
};

struct V12 : V11 {
  static constexpr int kNumber = 12;
  using Properties = PropertiesV12;
};

/// The table that a library exports as ncclNetPlugin_v<number>.
template <typename Version>
struct Net {
  const char* name;
  typename Version::Init init;
  int (*devices)(int* n);
  int (*get_properties)(int device, typename Version::Properties* properties);
  typename Version::Listen listen;
  typename Version::Connect connect;
  int (*accept)(void* listener, void** receiver, void** offload);
  int (*register_memory)(void* comm, void* data, size_t bytes, int type, void** region);
  int (*register_dma_buf)(void* comm, void* data, size_t bytes, int type, uint64_t offset, int fd,
                          void** region);
  int (*deregister)(void* comm, void* region);
  typename Version::Send send;
  typename Version::Receive receive;
  int (*flush)(void* receiver, int n, void** data, int* bytes, void** regions, void** request);
  int (*test)(void* request, int* done, int* bytes);
  int (*close_sender)(void* sender);
  int (*close_receiver)(void* receiver);
  int (*close_listener)(void* listener);
  int (*get_device_region)(void* comm, void* region, void** device_region);
  int (*receive_consumed)(void* receiver, int n, void* request);
};

}  // namespace hetccl::transport::ncclnet::abi
