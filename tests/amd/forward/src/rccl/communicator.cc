// librccl.so.1 of "forward", a library for tests only: it forwards RCCL's calls to NVIDIA's NCCL.
// No result of it is a result of AMD.
#include <cstdlib>
#include <cstring>

#include "rccl/frame.h"

using namespace forward;

namespace {

nccl::UniqueId to_nccl(const ncclUniqueId& id) {
  nccl::UniqueId result;
  std::memcpy(&result, &id, sizeof result);
  return result;
}

}  // namespace

// The version is RCCL's, not that of the NCCL behind it.
ncclResult_t ncclGetVersion(int* version) {
  if (version == nullptr) return ncclInvalidArgument;
  const char* named = std::getenv("FORWARD_RCCL_VERSION");
  *version = named == nullptr ? NCCL_VERSION_CODE : std::atoi(named);
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* uniqueId) {
  return with_nccl(__func__, [&](const nccl::Library& nccl) {
    if (uniqueId == nullptr) return ncclInvalidArgument;
    return from_nccl(nccl.get_unique_id(reinterpret_cast<nccl::UniqueId*>(uniqueId)));
  });
}

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank) {
  return with_nccl(__func__, [&](const nccl::Library& nccl) {
    if (comm == nullptr) return ncclInvalidArgument;
    // NCCL writes the handle later if a group is open, so it must write to the caller's variable.
    return from_nccl(
        nccl.comm_init_rank(reinterpret_cast<nccl::Comm*>(comm), nranks, to_nccl(commId), rank));
  });
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  return with_nccl(__func__,
                   [&](const nccl::Library& nccl) { return from_nccl(nccl.comm_finalize(comm)); });
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  return with_nccl(__func__,
                   [&](const nccl::Library& nccl) { return from_nccl(nccl.comm_destroy(comm)); });
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  return with_nccl(__func__,
                   [&](const nccl::Library& nccl) { return from_nccl(nccl.comm_abort(comm)); });
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* asyncError) {
  return with_nccl(__func__, [&](const nccl::Library& nccl) {
    if (asyncError == nullptr) return ncclInvalidArgument;
    int error = 0;
    const int result = nccl.comm_get_async_error(comm, &error);
    *asyncError = from_nccl(error);
    return from_nccl(result);
  });
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int* count) {
  return with_nccl(
      __func__, [&](const nccl::Library& nccl) { return from_nccl(nccl.comm_count(comm, count)); });
}

ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int* device) {
  return with_nccl(__func__, [&](const nccl::Library& nccl) {
    return from_nccl(nccl.comm_cu_device(comm, device));
  });
}

ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank) {
  return with_nccl(__func__, [&](const nccl::Library& nccl) {
    return from_nccl(nccl.comm_user_rank(comm, rank));
  });
}

const char* ncclGetErrorString(ncclResult_t result) {
  const nccl::Library* library = nccl::library();
  return library == nullptr ? "forward: NCCL did not load" : library->get_error_string(result);
}

const char* ncclGetLastError(ncclComm_t comm) {
  const nccl::Library* library = nccl::library();
  return library == nullptr ? "forward: NCCL did not load" : library->get_last_error(comm);
}

ncclResult_t ncclGroupStart() {
  return with_nccl(__func__,
                   [](const nccl::Library& nccl) { return from_nccl(nccl.group_start()); });
}

ncclResult_t ncclGroupEnd() {
  return enqueue_nccl(__func__,
                      [](const nccl::Library& nccl) { return from_nccl(nccl.group_end()); });
}
