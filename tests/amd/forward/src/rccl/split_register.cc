// The calls that RCCL 5.4.3 lacks. The library under no-split-register/ is built without this file.
#include <cstddef>
#include <cstring>

#include "rccl/frame.h"

using namespace forward;

namespace {

constexpr unsigned kConfigMagic = 0xcafebeef;

// NCCL reads the structure by its size and version, so the layout must be that of NCCL 2.27.
static_assert(sizeof(ncclConfig_t) == 72 && offsetof(ncclConfig_t, blocking) == 16);
static_assert(offsetof(ncclConfig_t, netName) == 32 && offsetof(ncclConfig_t, commName) == 48);
static_assert(offsetof(ncclConfig_t, nvlsCTAs) == 68);

ncclResult_t check_config(const char* function, const ncclConfig_t* config) {
  const bool valid = config == nullptr || config->magic == kConfigMagic;
  return valid ? ncclSuccess : reject_argument(function, "config magic", config->magic);
}

}  // namespace

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank,
                                    ncclConfig_t* config) {
  return with_nccl(__func__, [&](const nccl::Library& nccl) {
    const ncclResult_t result = check_config("ncclCommInitRankConfig", config);
    if (result != ncclSuccess) return result;
    nccl::UniqueId id;
    std::memcpy(&id, &commId, sizeof id);
    return from_nccl(
        nccl.comm_init_rank_config(reinterpret_cast<nccl::Comm*>(comm), nranks, id, rank, config));
  });
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* newcomm,
                           ncclConfig_t* config) {
  return with_nccl(__func__, [&](const nccl::Library& nccl) {
    const ncclResult_t result = check_config("ncclCommSplit", config);
    if (result != ncclSuccess) return result;
    if (color < NCCL_SPLIT_NOCOLOR) {
      return reject_argument("ncclCommSplit", "color", static_cast<unsigned>(color));
    }
    return from_nccl(
        nccl.comm_split(comm, color, key, reinterpret_cast<nccl::Comm*>(newcomm), config));
  });
}

ncclResult_t ncclCommRegister(const ncclComm_t comm, void* buff, size_t size, void** handle) {
  return with_nccl(__func__, [&](const nccl::Library& nccl) {
    return from_nccl(nccl.comm_register(comm, forward_host_copy(buff), size, handle));
  });
}

ncclResult_t ncclCommDeregister(const ncclComm_t comm, void* handle) {
  return with_nccl(__func__, [&](const nccl::Library& nccl) {
    return from_nccl(nccl.comm_deregister(comm, handle));
  });
}
