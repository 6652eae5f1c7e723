// RCCL's all-to-all calls, as grouped sends and receives: NCCL before 2.28 has no all-to-all.
#include "rccl/frame.h"

using namespace forward;

namespace {

size_t bytes_of(ncclDataType_t type) {
  switch (type) {
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32:
      return 4;
    case ncclInt64:
    case ncclUint64:
    case ncclFloat64:
      return 8;
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    default:
      return 1;
  }
}

struct Exchange {
  const char* send;
  char* receive;
  ncclDataType_t type;
  ncclComm_t comm;
  void* stream;
};

struct Part {
  size_t send_count;
  size_t send_offset;
  size_t receive_count;
  size_t receive_offset;
};

// NCCL refuses nothing before the group ends, so the first error is kept and the group is closed.
template <typename PartOf>
ncclResult_t exchange(const nccl::Library& nccl, const Exchange& all, PartOf&& part_of) {
  int ranks = 0;
  int code = nccl.comm_count(all.comm, &ranks);
  if (code != 0) return from_nccl(code);
  const size_t unit = bytes_of(all.type);
  code = nccl.group_start();
  if (code != 0) return from_nccl(code);
  for (int peer = 0; peer < ranks && code == 0; ++peer) {
    const Part part = part_of(static_cast<size_t>(peer));
    code = nccl.send(all.send + part.send_offset * unit, part.send_count, all.type, peer, all.comm,
                     all.stream);
    if (code != 0) break;
    code = nccl.recv(all.receive + part.receive_offset * unit, part.receive_count, all.type, peer,
                     all.comm, all.stream);
  }
  const int ended = nccl.group_end();
  return from_nccl(code != 0 ? code : ended);
}

}  // namespace

ncclResult_t ncclAllToAll(const void* sendbuff, void* recvbuff, size_t count,
                          ncclDataType_t datatype, ncclComm_t comm, hipStream_t stream) {
  return enqueue_nccl(__func__, [&](const nccl::Library& nccl) {
    const ncclResult_t result = check_type("ncclAllToAll", datatype);
    if (result != ncclSuccess) return result;
    const Exchange all{static_cast<const char*>(forward_host_copy(sendbuff)),
                       static_cast<char*>(forward_host_copy(recvbuff)), datatype, comm,
                       forward_cuda_stream(stream)};
    return exchange(nccl, all,
                    [&](size_t peer) { return Part{count, peer * count, count, peer * count}; });
  });
}

ncclResult_t ncclAllToAllv(const void* sendbuff, const size_t sendcounts[], const size_t sdispls[],
                           void* recvbuff, const size_t recvcounts[], const size_t rdispls[],
                           ncclDataType_t datatype, ncclComm_t comm, hipStream_t stream) {
  return enqueue_nccl(__func__, [&](const nccl::Library& nccl) {
    const ncclResult_t result = check_type("ncclAllToAllv", datatype);
    if (result != ncclSuccess) return result;
    const Exchange all{static_cast<const char*>(forward_host_copy(sendbuff)),
                       static_cast<char*>(forward_host_copy(recvbuff)), datatype, comm,
                       forward_cuda_stream(stream)};
    return exchange(nccl, all, [&](size_t peer) {
      return Part{sendcounts[peer], sdispls[peer], recvcounts[peer], rdispls[peer]};
    });
  });
}
