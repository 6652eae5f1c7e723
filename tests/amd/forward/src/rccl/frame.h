// AMD's own declarations of RCCL, exported, and the checks that every call shares.
#pragma once

#pragma GCC visibility push(default)
#include <rccl/rccl.h>
#pragma GCC visibility pop

#include "hip/exports.h"
#include "rccl/nccl.h"

/// Returns the number of values that librccl.so.1 rejected.
FORWARD_EXPORT unsigned long forward_rccl_rejections();

namespace forward {

/// Maps NCCL's result to RCCL's. A result that RCCL lacks becomes ncclInternalError.
[[nodiscard]] ncclResult_t from_nccl(int result);

/// Counts and prints a value that AMD's header does not define. Returns ncclInvalidArgument.
[[nodiscard]] ncclResult_t reject_argument(const char* function, const char* argument,
                                           unsigned long long value);

/// Checks a datatype. All of RCCL's twelve types have the same number in NCCL.
[[nodiscard]] ncclResult_t check_type(const char* function, ncclDataType_t type);

/// Checks a reduction: a built-in operator, or one that ncclRedOpCreatePreMulSum made. In mode fnuz
/// it refuses products of fp8, whose result depends on the exponent's bias.
[[nodiscard]] ncclResult_t check_reduction(const char* function, ncclDataType_t type,
                                           ncclRedOp_t op);

/// Remembers and forgets an operator that ncclRedOpCreatePreMulSum made. Thread-safe.
void add_operator(int op);
void remove_operator(int op);

/// Runs `body(nccl)` with the thread's HIP device current. Returns its result for RCCL.
template <typename Body>
ncclResult_t with_nccl(const char* function, Body&& body) {
  const nccl::Library* library = nccl::library();
  if (library == nullptr) return ncclSystemError;
  if (forward_make_current(function) != 0) return ncclUnhandledCudaError;
  return body(*library);
}

/// Like with_nccl, for calls that add work: mode slow-enqueue delays them.
template <typename Body>
ncclResult_t enqueue_nccl(const char* function, Body&& body) {
  const nccl::Library* library = nccl::library();
  if (library == nullptr) return ncclSystemError;
  if (forward_before_enqueue(function) != 0) return ncclUnhandledCudaError;
  return body(*library);
}

}  // namespace forward
