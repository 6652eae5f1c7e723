// NCCL's C ABI as nccl.h 2.32 and RCCL's declare it: types, values and the structs that callers
// pass. Streams, windows and device handles are opaque. Structs only grow at their end.
#pragma once

#include <climits>
#include <cstddef>
#include <cstdint>

extern "C" {

struct ncclComm;
using ncclComm_t = ncclComm*;
struct ncclWindow_vidmem;
using ncclWindow_t = ncclWindow_vidmem*;
using ncclStream_t = void*;  // cudaStream_t, hipStream_t
struct ncclParamHandle;
using ncclParamHandle_t = ncclParamHandle*;

struct ncclUniqueId {
  char internal[128];
};

enum ncclResult_t : int {
  ncclSuccess = 0,
  ncclUnhandledCudaError = 1,
  ncclSystemError = 2,
  ncclInternalError = 3,
  ncclInvalidArgument = 4,
  ncclInvalidUsage = 5,
  ncclRemoteError = 6,
  ncclInProgress = 7,
  ncclTimeout = 8
};

using ncclDataType_t = int;
using ncclRedOp_t = int;
using ncclScalarResidence_t = int;
using ncclCommMemStat_t = int;

// ncclConfig_t with the fields of 2.27; the first ones, up to trafficClass, exist since 2.18.
// `size` tells how much the caller has.
struct ncclConfig_t {
  size_t size;
  unsigned magic;
  unsigned version;
  int blocking;
  int cgaClusterSize;
  int minCTAs;
  int maxCTAs;
  const char* netName;
  int splitShare;
  int trafficClass;      // from 2.27 on
  const char* commName;  // from 2.27 on
};
inline constexpr unsigned NCCL_API_MAGIC = 0xcafebeef;
inline constexpr int NCCL_CONFIG_UNDEF_INT = INT_MIN;
inline constexpr int NCCL_SPLIT_NOCOLOR = -1;

struct ncclSimInfo_t {
  size_t size;
  unsigned magic;
  unsigned version;
  float estimatedTime;
};

// A team of ranks, for the device API.
struct ncclTeam_t {
  int nRanks, rank, stride;
};

struct ncclCollConfig_t;
struct ncclWaitSignalDesc_t;
struct ncclEncryptionConfig_t;
struct ncclDevComm;
struct ncclDevCommRequirements;
}
