// libibverbs as a table of functions, found at run time. Tests pass their own table.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "transport/verbs/abi.h"

namespace hetccl::transport::verbs {

/// Thread-safe, as libibverbs is. Calls that the header defines as inline functions go through
/// abi::Context::ops instead.
struct Api {
  std::string path;
  abi::Device** (*list_devices)(int* n) = nullptr;
  void (*free_devices)(abi::Device**) = nullptr;
  abi::Context* (*open_device)(abi::Device*) = nullptr;
  int (*close_device)(abi::Context*) = nullptr;
  int (*query_port)(abi::Context*, uint8_t port, abi::PortAttr*) = nullptr;
  int (*query_gid)(abi::Context*, uint32_t port, uint32_t index, abi::GidEntry*, uint32_t flags,
                   size_t entry_bytes) = nullptr;
  int (*query_pkey)(abi::Context*, uint8_t port, int index, uint16_t* big_endian) = nullptr;
  abi::Pd* (*alloc_pd)(abi::Context*) = nullptr;
  int (*dealloc_pd)(abi::Pd*) = nullptr;
  abi::Mr* (*reg_mr)(abi::Pd*, void* address, size_t bytes, int access) = nullptr;
  /// Null before rdma-core 34.
  abi::Mr* (*reg_dmabuf_mr)(abi::Pd*, uint64_t offset, size_t bytes, uint64_t address, int fd,
                            int access) = nullptr;
  int (*dereg_mr)(abi::Mr*) = nullptr;
  abi::CompletionChannel* (*create_comp_channel)(abi::Context*) = nullptr;
  int (*destroy_comp_channel)(abi::CompletionChannel*) = nullptr;
  abi::Cq* (*create_cq)(abi::Context*, int entries, void* user, abi::CompletionChannel*,
                        int vector) = nullptr;
  int (*destroy_cq)(abi::Cq*) = nullptr;
  int (*get_cq_event)(abi::CompletionChannel*, abi::Cq**, void** user) = nullptr;
  void (*ack_cq_events)(abi::Cq*, unsigned n) = nullptr;
  abi::Qp* (*create_qp)(abi::Pd*, abi::QpInit*) = nullptr;
  int (*modify_qp)(abi::Qp*, abi::QpAttr*, int mask) = nullptr;
  int (*destroy_qp)(abi::Qp*) = nullptr;
  const char* (*status_text)(int wc_status) = nullptr;
  int (*get_async_event)(abi::Context*, abi::AsyncEvent*) = nullptr;
  void (*ack_async_event)(abi::AsyncEvent*) = nullptr;
  const char* (*event_text)(int type) = nullptr;
  int (*fork_init)() = nullptr;
  int (*is_fork_initialized)() = nullptr;  ///< null before rdma-core 35
};

/// Returns Unsupported if there is no libibverbs, or if it lacks functions. Never unloaded.
Result<std::shared_ptr<const Api>> load_library();

}  // namespace hetccl::transport::verbs
