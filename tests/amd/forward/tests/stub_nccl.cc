// A recording stub of NCCL for the tests: a communicator of two ranks, 0x55.
#include "rccl/nccl.h"
#include "recorder.h"

using forward::nccl::UniqueId;
using stub::record;

STUB_EXPORT int ncclGetUniqueId(UniqueId* id) {
  std::memset(id, 7, sizeof *id);
  return record("ncclGetUniqueId");
}
STUB_EXPORT int ncclCommInitRank(void** comm, int ranks, UniqueId id, int rank) {
  *comm = reinterpret_cast<void*>(0x55);
  return record("ncclCommInitRank", ranks, static_cast<int>(id.bytes[127]), rank);
}
STUB_EXPORT int ncclCommInitRankConfig(void** comm, int ranks, UniqueId id, int rank, void*) {
  *comm = reinterpret_cast<void*>(0x55);
  return record("ncclCommInitRankConfig", ranks, static_cast<int>(id.bytes[127]), rank);
}
STUB_EXPORT int ncclCommFinalize(void* comm) {
  return record("ncclCommFinalize", comm);
}
STUB_EXPORT int ncclCommDestroy(void* comm) {
  return record("ncclCommDestroy", comm);
}
STUB_EXPORT int ncclCommAbort(void* comm) {
  return record("ncclCommAbort", comm);
}
STUB_EXPORT int ncclCommGetAsyncError(void* comm, int* error) {
  *error = record("asynchronous error");
  return record("ncclCommGetAsyncError", comm);
}
STUB_EXPORT int ncclCommCount(void* comm, int* count) {
  *count = 2;
  return record("ncclCommCount", comm);
}
STUB_EXPORT int ncclCommCuDevice(void* comm, int* device) {
  *device = 1;
  return record("ncclCommCuDevice", comm);
}
STUB_EXPORT int ncclCommUserRank(void* comm, int* rank) {
  *rank = 1;
  return record("ncclCommUserRank", comm);
}
STUB_EXPORT int ncclCommSplit(void* comm, int color, int key, void** split, void*) {
  *split = reinterpret_cast<void*>(0x56);
  return record("ncclCommSplit", comm, color, key);
}
STUB_EXPORT int ncclCommRegister(void* comm, void* buffer, std::size_t bytes, void** handle) {
  *handle = buffer;
  return record("ncclCommRegister", comm, buffer, bytes);
}
STUB_EXPORT int ncclCommDeregister(void* comm, void* handle) {
  return record("ncclCommDeregister", comm, handle);
}
STUB_EXPORT const char* ncclGetErrorString(int) {
  return "stub error";
}
STUB_EXPORT const char* ncclGetLastError(void*) {
  return "stub last error";
}
STUB_EXPORT int ncclGroupStart() {
  return record("ncclGroupStart");
}
STUB_EXPORT int ncclGroupEnd() {
  return record("ncclGroupEnd");
}
STUB_EXPORT int ncclAllReduce(const void*, void*, std::size_t count, int type, int op, void* comm,
                              void* stream) {
  return record("ncclAllReduce", count, type, op, comm, stream);
}
STUB_EXPORT int ncclBroadcast(const void*, void*, std::size_t count, int type, int root, void* comm,
                              void* stream) {
  return record("ncclBroadcast", count, type, root, comm, stream);
}
STUB_EXPORT int ncclReduce(const void*, void*, std::size_t count, int type, int op, int root,
                           void* comm, void* stream) {
  return record("ncclReduce", count, type, op, root, comm, stream);
}
STUB_EXPORT int ncclAllGather(const void*, void*, std::size_t count, int type, void* comm,
                              void* stream) {
  return record("ncclAllGather", count, type, comm, stream);
}
STUB_EXPORT int ncclReduceScatter(const void*, void*, std::size_t count, int type, int op,
                                  void* comm, void* stream) {
  return record("ncclReduceScatter", count, type, op, comm, stream);
}
STUB_EXPORT int ncclSend(const void* from, std::size_t count, int type, int peer, void* comm,
                         void* stream) {
  return record("ncclSend", from, count, type, peer, comm, stream);
}
STUB_EXPORT int ncclRecv(void* to, std::size_t count, int type, int peer, void* comm,
                         void* stream) {
  return record("ncclRecv", to, count, type, peer, comm, stream);
}
STUB_EXPORT int ncclRedOpCreatePreMulSum(int* op, void*, int type, int residence, void* comm) {
  *op = 5;
  return record("ncclRedOpCreatePreMulSum", type, residence, comm);
}
STUB_EXPORT int ncclRedOpDestroy(int op, void* comm) {
  return record("ncclRedOpDestroy", op, comm);
}
