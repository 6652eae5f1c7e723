#include "rccl/nccl.h"

#include <cstdio>

#include "core/shared_object.h"

namespace forward::nccl {
namespace {

bool complete = true;

template <typename Function>
void take(const SharedObject& object, Function*& function, const char* name) {
  object.resolve(function, name);
  if (function != nullptr) return;
  std::fprintf(stderr, "forward: NVIDIA's NCCL has no %s\n", name);
  complete = false;
}

void take_communicators(const SharedObject& object, Library& nccl) {
  take(object, nccl.get_unique_id, "ncclGetUniqueId");
  take(object, nccl.comm_init_rank, "ncclCommInitRank");
  take(object, nccl.comm_init_rank_config, "ncclCommInitRankConfig");
  take(object, nccl.comm_finalize, "ncclCommFinalize");
  take(object, nccl.comm_destroy, "ncclCommDestroy");
  take(object, nccl.comm_abort, "ncclCommAbort");
  take(object, nccl.comm_get_async_error, "ncclCommGetAsyncError");
  take(object, nccl.comm_count, "ncclCommCount");
  take(object, nccl.comm_cu_device, "ncclCommCuDevice");
  take(object, nccl.comm_user_rank, "ncclCommUserRank");
  take(object, nccl.comm_split, "ncclCommSplit");
  take(object, nccl.comm_register, "ncclCommRegister");
  take(object, nccl.comm_deregister, "ncclCommDeregister");
  take(object, nccl.get_error_string, "ncclGetErrorString");
  take(object, nccl.get_last_error, "ncclGetLastError");
}

void take_operations(const SharedObject& object, Library& nccl) {
  take(object, nccl.group_start, "ncclGroupStart");
  take(object, nccl.group_end, "ncclGroupEnd");
  take(object, nccl.all_reduce, "ncclAllReduce");
  take(object, nccl.broadcast, "ncclBroadcast");
  take(object, nccl.reduce, "ncclReduce");
  take(object, nccl.all_gather, "ncclAllGather");
  take(object, nccl.reduce_scatter, "ncclReduceScatter");
  take(object, nccl.send, "ncclSend");
  take(object, nccl.recv, "ncclRecv");
  take(object, nccl.op_create, "ncclRedOpCreatePreMulSum");
  take(object, nccl.op_destroy, "ncclRedOpDestroy");
}

const Library* load() {
  const SharedObject object("FORWARD_NCCL", "libnccl.so.2");
  if (!object.loaded()) return nullptr;
  static Library result;
  take_communicators(object, result);
  take_operations(object, result);
  return complete ? &result : nullptr;
}

}  // namespace

const Library* library() {
  static const Library* instance = load();
  return instance;
}

}  // namespace forward::nccl
