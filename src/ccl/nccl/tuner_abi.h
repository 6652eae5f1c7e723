// The C types of NCCL's and RCCL's tuner plug-ins, as declared in
// src/include/plugin/tuner/tuner_v2.h to tuner_v5.h of NCCL 2.28.9, and in src/include/nccl_tuner.h
// of 2.21.5 and RCCL 2.21.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/tactic.h"

namespace hetccl::nccl_tuner {

// ncclResult_t, ncclFunc_t and ncclDebugLogLevel are C enumerations, as large as an int.

/// ncclSuccess. Plug-ins return nothing else, because it would fail the collective.
inline constexpr int kSuccess = 0;

/// Values of ncclDebugLogLevel and ncclDebugLogSubSys.
inline constexpr int kLogWarn = 2, kLogInfo = 3;
inline constexpr unsigned long kLogTuning = 0x40;
/// ncclDebugLogger_t: printf to NCCL's log.
using LogFunction = void (*)(int level, unsigned long subsystems, const char* file, int line,
                             const char* format, ...);

/// The values of ncclFunc_t that plug-ins are asked for: LibraryCall's numbers.
enum Function : int { kBroadcast, kReduce, kAllGather, kReduceScatter, kAllReduce };
static_assert(kBroadcast == static_cast<int>(LibraryCall::Broadcast) &&
              kAllReduce == static_cast<int>(LibraryCall::AllReduce));
/// NCCL_ALGO_PROTO_IGNORE: an entry of a cost table that cannot be chosen.
inline constexpr float kImpossible = -1.0F;

// Cost tables are declared as float**, but are rows of floats: float[n_algorithms][n_protocols].

struct TunerV2 {
  const char* name;
  int (*init)(size_t n_ranks, size_t n_nodes, LogFunction log, void** context);
  int (*get_coll_info)(void* context, int function, size_t bytes, int collnet, int nvls,
                       int pipelined, int* algorithm, int* protocol, int* channels);
  int (*destroy)(void* context);
};

struct TunerV3 {
  const char* name;
  int (*init)(size_t n_ranks, size_t n_nodes, LogFunction log, void** context);
  int (*get_coll_info)(void* context, int function, size_t bytes, int pipelined, float** costs,
                       int n_algorithms, int n_protocols, int* channels);
  int (*destroy)(void* context);
};

struct TunerV4 {
  const char* name;
  int (*init)(size_t n_ranks, size_t n_nodes, LogFunction log, void** context);
  int (*get_coll_info)(void* context, int function, size_t bytes, int pipelined, float** costs,
                       int n_algorithms, int n_protocols, int registered, int* channels);
  int (*destroy)(void* context);
};

/// ncclNvlDomainInfo_v5_t.
struct NvlDomainInfo {
  int n_domains, least_ranks, most_ranks;
};
/// ncclTunerConstants_v5_t: constants of NCCL's model, which the plug-in does not change.
struct TunerConstants {
  double base_latencies[7][3];
  double hardware_latencies[3][7][3];
  double ll_bandwidths[4][3];
  double ring_ll128_bandwidths[4][3];
  double tree_ll128_bandwidths[4][3];
  double tree_bandwidths[4][3];
  double nvls_tree_bandwidths[4][3];
};

struct TunerV5 {
  const char* name;
  int (*init)(void** context, uint64_t communicator, size_t n_ranks, size_t n_nodes,
              LogFunction log, NvlDomainInfo* domains, TunerConstants* constants);
  int (*get_coll_info)(void* context, int function, size_t bytes, int pipelined, float** costs,
                       int n_algorithms, int n_protocols, int registered, int* channels);
  int (*finalize)(void* context);
};

static_assert(sizeof(TunerV2) == 32 && sizeof(TunerV3) == 32 && sizeof(TunerV4) == 32 &&
              sizeof(TunerV5) == 32);
static_assert(offsetof(TunerV2, init) == 8 && offsetof(TunerV2, get_coll_info) == 16 &&
              offsetof(TunerV2, destroy) == 24);
static_assert(offsetof(TunerV3, init) == 8 && offsetof(TunerV3, get_coll_info) == 16 &&
              offsetof(TunerV3, destroy) == 24);
static_assert(offsetof(TunerV4, init) == 8 && offsetof(TunerV4, get_coll_info) == 16 &&
              offsetof(TunerV4, destroy) == 24);
static_assert(offsetof(TunerV5, init) == 8 && offsetof(TunerV5, get_coll_info) == 16 &&
              offsetof(TunerV5, finalize) == 24);
static_assert(sizeof(NvlDomainInfo) == 12 && sizeof(TunerConstants) == 1152);
static_assert(offsetof(TunerConstants, hardware_latencies) == 168 &&
              offsetof(TunerConstants, ll_bandwidths) == 672 &&
              offsetof(TunerConstants, nvls_tree_bandwidths) == 1056);

}  // namespace hetccl::nccl_tuner
