// NCCL's C ABI as a table. RCCL has the same calls and values under another soname. Every call
// exists since NCCL 2.18; optional ones are null if missing.
#pragma once

#include <climits>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/dynlib.h"
#include "base/status.h"
#include "ccl/ccl.h"

namespace hetccl::ccl::nccl {

/// Values of ncclResult_t.
enum Outcome : int { kSuccess = 0, kInvalidUsage = 5, kRemoteError = 6, kInProgress = 7 };
/// ncclScalarHostImmediate: the call reads the factor.
inline constexpr int kHostImmediate = 1;
/// The first version with fp8 types.
inline constexpr int kFp8Version = 22'400;
inline constexpr int kOldestVersion = 21'800;

inline bool is_fp8(DataType type) {
  return type == DataType::Float8E4m3 || type == DataType::Float8E5m2;
}
/// Returns whether a library of that version computes with a type. Moving data needs no type.
inline bool has_type(int version, DataType type) {
  return type < DataType::Float8E4m3 || (is_fp8(type) && version >= kFp8Version);
}

/// ncclConfig_t as of NCCL 2.18. New members are only added at its end, and newer libraries read
/// `size` bytes.
struct CommConfig {
  static constexpr int kUnset = INT_MIN;
  size_t size = sizeof(CommConfig);
  unsigned magic = 0xcafebeef;
  unsigned version = kOldestVersion;
  int blocking = kUnset;
  int cga_cluster_size = kUnset;
  int min_ctas = kUnset, max_ctas = kUnset;  ///< thread blocks of its kernels
  const char* net_name = nullptr;
  int split_share = kUnset;
};
static_assert(sizeof(CommConfig) == 48);

/// Calls return an Outcome. Types and built-in operators have the values of DataType and RedOp.
struct Api {
  std::string name;     ///< "nccl", "rccl"
  std::string version;  ///< "2.28.9"
  int version_code = 0;
  std::string path;  ///< of the library
  std::function<const char*(int)> error_text;
  std::function<const char*(void* comm)> last_error;  ///< error text of a communicator, or of the
                                                      ///< thread if null; may be null

  std::function<int(UniqueId*)> unique_id;
  std::function<int(void** comm, int n_ranks, UniqueId id, int rank)> init;
  /// Null: no communicators for pairs.
  std::function<int(void** comm, int n_ranks, UniqueId id, int rank, const CommConfig*)> init_with;
  std::function<int(void* comm)> destroy, abort;
  std::function<int(void* comm, int* outcome)> async_error;
  std::function<int()> group_start, group_end;
  std::function<int(const void*, void*, size_t, int type, int op, void* comm, void* stream)>
      all_reduce, reduce_scatter;
  std::function<int(const void*, void*, size_t, int type, int op, int root, void*, void*)> reduce;
  std::function<int(const void*, void*, size_t, int type, int root, void*, void*)> broadcast;
  std::function<int(const void*, void*, size_t, int type, void* comm, void* stream)> all_gather;
  std::function<int(const void*, size_t, int type, int peer, void* comm, void* stream)> send;
  std::function<int(void*, size_t, int type, int peer, void* comm, void* stream)> recv;
  /// Both or neither are set; without them there are no pre-multiplied sums.
  std::function<int(int* op, void* scalar, int type, int residence, void* comm)> create_premul_sum;
  std::function<int(int op, void* comm)> destroy_op;
  /// Both or neither are set; without them no memory is registered.
  std::function<int(void* comm, void* memory, size_t bytes, void** handle)> register_memory;
  std::function<int(void* comm, void* handle)> deregister_memory;

  std::vector<DynLib> libraries;  ///< keep the calls valid
};

/// Returns whether a library with these calls has the operator.
inline bool has_operator(const Api& api, RedOp op) {
  return op == RedOp::PreMulSum ? static_cast<bool>(api.create_premul_sum) : !is_bitwise(op);
}

/// The name of a function that hetccl's own stand-in exports: const char* (*)(), which returns the
/// path of the vendor's library, "" if there is none.
inline constexpr const char* kStandInMarker = "hetccl_nccl_vendor_path";

/// Loads NCCL from `path`; with "", the process's own libnccl.so.2, else the system's. Returns
/// Unsupported, naming what is missing, or if the library is too old.
Result<std::shared_ptr<const Api>> load_nccl(const std::string& path);
/// Loads RCCL, librccl.so.1, in the same way. A library without a version counts as the oldest.
/// `hip` is the path of the HIP runtime whose streams it will take; "": unknown. Returns
/// Unsupported for an RCCL that calls another copy of HIP, because it would not know these streams.
Result<std::shared_ptr<const Api>> load_rccl(const std::string& path, const std::string& hip);

}  // namespace hetccl::ccl::nccl
