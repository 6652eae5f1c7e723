// Collectives and messages.
#include "nccl/dispatch.h"

using namespace hetccl::nccl;

namespace {

hetcclDataType_t type_of(ncclDataType_t type) {
  return static_cast<hetcclDataType_t>(type);
}
hetcclRedOp_t operator_of(ncclRedOp_t op) {
  return static_cast<hetcclRedOp_t>(op);
}

}  // namespace

HETCCL_NCCL_CALL(ncclAllReduce,
                 (const void* send, void* recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
                  ncclComm_t comm, ncclStream_t stream),
                 (send, recv, count, type, op, own, stream),
                 hetcclAllReduce(send, recv, count, type_of(type), operator_of(op), mixed, stream))

HETCCL_NCCL_CALL(ncclReduce,
                 (const void* send, void* recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
                  int root, ncclComm_t comm, ncclStream_t stream),
                 (send, recv, count, type, op, root, own, stream),
                 hetcclReduce(send, recv, count, type_of(type), operator_of(op), root, mixed,
                              stream))

HETCCL_NCCL_CALL(ncclReduceScatter,
                 (const void* send, void* recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
                  ncclComm_t comm, ncclStream_t stream),
                 (send, recv, count, type, op, own, stream),
                 hetcclReduceScatter(send, recv, count, type_of(type), operator_of(op), mixed,
                                     stream))

HETCCL_NCCL_CALL(ncclBroadcast,
                 (const void* send, void* recv, size_t count, ncclDataType_t type, int root,
                  ncclComm_t comm, ncclStream_t stream),
                 (send, recv, count, type, root, own, stream),
                 hetcclBroadcast(send, recv, count, type_of(type), root, mixed, stream))

HETCCL_NCCL_CALL(ncclBcast,
                 (void* buffer, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                  ncclStream_t stream),
                 (buffer, count, type, root, own, stream),
                 hetcclBroadcast(buffer, buffer, count, type_of(type), root, mixed, stream))

HETCCL_NCCL_CALL(ncclAllGather,
                 (const void* send, void* recv, size_t count, ncclDataType_t type, ncclComm_t comm,
                  ncclStream_t stream),
                 (send, recv, count, type, own, stream),
                 hetcclAllGather(send, recv, count, type_of(type), mixed, stream))

HETCCL_NCCL_CALL(ncclGather,
                 (const void* send, void* recv, size_t count, ncclDataType_t type, int root,
                  ncclComm_t comm, ncclStream_t stream),
                 (send, recv, count, type, root, own, stream),
                 hetcclGather(send, recv, count, type_of(type), root, mixed, stream))

HETCCL_NCCL_CALL(ncclScatter,
                 (const void* send, void* recv, size_t count, ncclDataType_t type, int root,
                  ncclComm_t comm, ncclStream_t stream),
                 (send, recv, count, type, root, own, stream),
                 hetcclScatter(send, recv, count, type_of(type), root, mixed, stream))

HETCCL_NCCL_CALL(ncclAlltoAll,
                 (const void* send, void* recv, size_t count, ncclDataType_t type, ncclComm_t comm,
                  ncclStream_t stream),
                 (send, recv, count, type, own, stream),
                 hetcclAllToAll(send, recv, count, type_of(type), mixed, stream))

// RCCL spells it so.
HETCCL_NCCL_CALL(ncclAllToAll,
                 (const void* send, void* recv, size_t count, ncclDataType_t type, ncclComm_t comm,
                  ncclStream_t stream),
                 (send, recv, count, type, own, stream),
                 hetcclAllToAll(send, recv, count, type_of(type), mixed, stream))

HETCCL_NCCL_CALL(ncclAllToAllv,
                 (const void* send, const size_t* send_counts, const size_t* send_displs,
                  void* recv, const size_t* recv_counts, const size_t* recv_displs,
                  ncclDataType_t type, ncclComm_t comm, ncclStream_t stream),
                 (send, send_counts, send_displs, recv, recv_counts, recv_displs, type, own,
                  stream),
                 hetcclAllToAllV(send, send_counts, send_displs, recv, recv_counts, recv_displs,
                                 type_of(type), mixed, stream))

HETCCL_NCCL_CALL(ncclSend,
                 (const void* send, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                  ncclStream_t stream),
                 (send, count, type, peer, own, stream),
                 hetcclSend(send, count, type_of(type), peer, mixed, stream))

HETCCL_NCCL_CALL(ncclRecv,
                 (void* recv, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                  ncclStream_t stream),
                 (recv, count, type, peer, own, stream),
                 hetcclRecv(recv, count, type_of(type), peer, mixed, stream))

HETCCL_NCCL_CALL(ncclRedOpCreatePreMulSum,
                 (ncclRedOp_t * op, void* scalar, ncclDataType_t type,
                  ncclScalarResidence_t residence, ncclComm_t comm),
                 (op, scalar, type, residence, own),
                 hetcclRedOpCreatePreMulSum(reinterpret_cast<hetcclRedOp_t*>(op), scalar,
                                            type_of(type),
                                            static_cast<hetcclScalarResidence_t>(residence), mixed))

HETCCL_NCCL_CALL(ncclRedOpDestroy, (ncclRedOp_t op, ncclComm_t comm), (op, own),
                 hetcclRedOpDestroy(operator_of(op), mixed))

HETCCL_NCCL_EXPORT ncclResult_t ncclGroupStart() {
  return guarded([] { return Group::of_this_thread().start(); });
}
HETCCL_NCCL_PROFILED(ncclGroupStart)

HETCCL_NCCL_EXPORT ncclResult_t ncclGroupEnd() {
  return guarded([] { return Group::of_this_thread().end(); });
}
HETCCL_NCCL_PROFILED(ncclGroupEnd)

HETCCL_NCCL_EXPORT ncclResult_t ncclGroupSimulateEnd(ncclSimInfo_t* info) {
  return guarded([&] { return Group::of_this_thread().simulate_end(info); });
}
HETCCL_NCCL_PROFILED(ncclGroupSimulateEnd)
