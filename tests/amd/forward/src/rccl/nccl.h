// Minimal prototypes of NVIDIA's NCCL. Enumerations are plain integers here.
#pragma once

#include <cstddef>

namespace forward::nccl {

using Comm = void*;
using Stream = void*;

struct UniqueId {  // Passed by value, as NCCL's.
  char bytes[128];
};

struct Library {
  int (*get_unique_id)(UniqueId* id);
  int (*comm_init_rank)(Comm* comm, int ranks, UniqueId id, int rank);
  int (*comm_init_rank_config)(Comm* comm, int ranks, UniqueId id, int rank, void* config);
  int (*comm_finalize)(Comm comm);
  int (*comm_destroy)(Comm comm);
  int (*comm_abort)(Comm comm);
  int (*comm_get_async_error)(Comm comm, int* error);
  int (*comm_count)(Comm comm, int* count);
  int (*comm_cu_device)(Comm comm, int* device);
  int (*comm_user_rank)(Comm comm, int* rank);
  int (*comm_split)(Comm comm, int color, int key, Comm* split, void* config);
  int (*comm_register)(Comm comm, void* buffer, std::size_t bytes, void** handle);
  int (*comm_deregister)(Comm comm, void* handle);
  const char* (*get_error_string)(int result);
  const char* (*get_last_error)(Comm comm);
  int (*group_start)();
  int (*group_end)();
  int (*all_reduce)(const void* from, void* to, std::size_t count, int type, int op, Comm comm,
                    Stream stream);
  int (*broadcast)(const void* from, void* to, std::size_t count, int type, int root, Comm comm,
                   Stream stream);
  int (*reduce)(const void* from, void* to, std::size_t count, int type, int op, int root,
                Comm comm, Stream stream);
  int (*all_gather)(const void* from, void* to, std::size_t count, int type, Comm comm,
                    Stream stream);
  int (*reduce_scatter)(const void* from, void* to, std::size_t count, int type, int op, Comm comm,
                        Stream stream);
  int (*send)(const void* from, std::size_t count, int type, int peer, Comm comm, Stream stream);
  int (*recv)(void* to, std::size_t count, int type, int peer, Comm comm, Stream stream);
  int (*op_create)(int* op, void* scalar, int type, int residence, Comm comm);
  int (*op_destroy)(int op, Comm comm);
};

/// Returns NCCL, or null if neither the path in FORWARD_NCCL nor libnccl.so.2 loads, or if it lacks
/// a symbol that every NCCL since 2.19 has. Thread-safe.
[[nodiscard]] const Library* library();

}  // namespace forward::nccl
