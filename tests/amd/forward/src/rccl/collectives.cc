// Collectives and point-to-point calls.
#include "rccl/frame.h"

using namespace forward;

ncclResult_t ncclAllReduce(const void* sendbuff, void* recvbuff, size_t count,
                           ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                           hipStream_t stream) {
  return enqueue_nccl(__func__, [&](const nccl::Library& nccl) {
    const ncclResult_t result = check_reduction("ncclAllReduce", datatype, op);
    if (result != ncclSuccess) return result;
    return from_nccl(nccl.all_reduce(forward_host_copy(sendbuff), forward_host_copy(recvbuff),
                                     count, datatype, op, comm, forward_cuda_stream(stream)));
  });
}

ncclResult_t ncclReduce(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                        ncclRedOp_t op, int root, ncclComm_t comm, hipStream_t stream) {
  return enqueue_nccl(__func__, [&](const nccl::Library& nccl) {
    const ncclResult_t result = check_reduction("ncclReduce", datatype, op);
    if (result != ncclSuccess) return result;
    return from_nccl(nccl.reduce(forward_host_copy(sendbuff), forward_host_copy(recvbuff), count,
                                 datatype, op, root, comm, forward_cuda_stream(stream)));
  });
}

ncclResult_t ncclReduceScatter(const void* sendbuff, void* recvbuff, size_t recvcount,
                               ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                               hipStream_t stream) {
  return enqueue_nccl(__func__, [&](const nccl::Library& nccl) {
    const ncclResult_t result = check_reduction("ncclReduceScatter", datatype, op);
    if (result != ncclSuccess) return result;
    return from_nccl(nccl.reduce_scatter(forward_host_copy(sendbuff), forward_host_copy(recvbuff),
                                         recvcount, datatype, op, comm,
                                         forward_cuda_stream(stream)));
  });
}

ncclResult_t ncclBroadcast(const void* sendbuff, void* recvbuff, size_t count,
                           ncclDataType_t datatype, int root, ncclComm_t comm, hipStream_t stream) {
  return enqueue_nccl(__func__, [&](const nccl::Library& nccl) {
    const ncclResult_t result = check_type("ncclBroadcast", datatype);
    if (result != ncclSuccess) return result;
    return from_nccl(nccl.broadcast(forward_host_copy(sendbuff), forward_host_copy(recvbuff), count,
                                    datatype, root, comm, forward_cuda_stream(stream)));
  });
}

ncclResult_t ncclBcast(void* buff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
                       hipStream_t stream) {
  return ncclBroadcast(buff, buff, count, datatype, root, comm, stream);
}

ncclResult_t ncclAllGather(const void* sendbuff, void* recvbuff, size_t sendcount,
                           ncclDataType_t datatype, ncclComm_t comm, hipStream_t stream) {
  return enqueue_nccl(__func__, [&](const nccl::Library& nccl) {
    const ncclResult_t result = check_type("ncclAllGather", datatype);
    if (result != ncclSuccess) return result;
    return from_nccl(nccl.all_gather(forward_host_copy(sendbuff), forward_host_copy(recvbuff),
                                     sendcount, datatype, comm, forward_cuda_stream(stream)));
  });
}

ncclResult_t ncclSend(const void* sendbuff, size_t count, ncclDataType_t datatype, int peer,
                      ncclComm_t comm, hipStream_t stream) {
  return enqueue_nccl(__func__, [&](const nccl::Library& nccl) {
    const ncclResult_t result = check_type("ncclSend", datatype);
    if (result != ncclSuccess) return result;
    return from_nccl(nccl.send(forward_host_copy(sendbuff), count, datatype, peer, comm,
                               forward_cuda_stream(stream)));
  });
}

ncclResult_t ncclRecv(void* recvbuff, size_t count, ncclDataType_t datatype, int peer,
                      ncclComm_t comm, hipStream_t stream) {
  return enqueue_nccl(__func__, [&](const nccl::Library& nccl) {
    const ncclResult_t result = check_type("ncclRecv", datatype);
    if (result != ncclSuccess) return result;
    return from_nccl(nccl.recv(forward_host_copy(recvbuff), count, datatype, peer, comm,
                               forward_cuda_stream(stream)));
  });
}
