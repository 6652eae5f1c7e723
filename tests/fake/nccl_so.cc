// A library with NCCL's symbols that reports version FAKE_NCCL_VERSION, for tests of loading. Its
// calls do nothing.
#define CALL(name)        \
  extern "C" int name() { \
    return 0;             \
  }

extern "C" int ncclGetVersion(int* version) {
  *version = FAKE_NCCL_VERSION;
  return 0;
}
extern "C" const char* ncclGetErrorString(int /*outcome*/) {
  return "an error";
}
CALL(ncclGetUniqueId)
CALL(ncclCommInitRank)
CALL(ncclCommDestroy)
CALL(ncclCommAbort)
CALL(ncclCommGetAsyncError)
CALL(ncclGroupStart)
CALL(ncclGroupEnd)
CALL(ncclAllReduce)
CALL(ncclReduceScatter)
CALL(ncclReduce)
CALL(ncclBroadcast)
CALL(ncclAllGather)
CALL(ncclSend)
#ifndef FAKE_NCCL_LACKS_RECV
CALL(ncclRecv)
#endif
#ifndef FAKE_NCCL_LACKS_OPTIONAL
CALL(ncclGetLastError)
CALL(ncclCommInitRankConfig)
CALL(ncclRedOpCreatePreMulSum)
CALL(ncclRedOpDestroy)
#endif
