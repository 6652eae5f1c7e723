// RCCL's enumerations, checked value by value.
#include <mutex>
#include <set>

#include "core/hostile.h"
#include "core/reject.h"
#include "rccl/frame.h"

namespace forward {
namespace {

static_assert(sizeof(ncclUniqueId) == sizeof(nccl::UniqueId));
static_assert(ncclInt8 == 0 && ncclUint8 == 1 && ncclInt32 == 2 && ncclUint32 == 3);
static_assert(ncclInt64 == 4 && ncclUint64 == 5 && ncclFloat16 == 6 && ncclFloat32 == 7);
static_assert(ncclFloat64 == 8 && ncclBfloat16 == 9);
static_assert(ncclFloat8e4m3 == 10 && ncclFloat8e5m2 == 11 && ncclNumTypes == 12);
static_assert(ncclSum == 0 && ncclProd == 1 && ncclMax == 2 && ncclMin == 3 && ncclAvg == 4);
static_assert(ncclNumOps == 5 && ncclScalarDevice == 0 && ncclScalarHostImmediate == 1);
static_assert(ncclUnhandledCudaError == 1 && ncclInvalidArgument == 4 && ncclInProgress == 7);
static_assert(ncclNumResults == 8);

struct Operators {
  std::mutex mutex;
  std::multiset<int> made;
};

Operators& operators() {
  static Operators* instance = new Operators;
  return *instance;
}

bool known_operator(int op) {
  Operators& state = operators();
  const std::lock_guard<std::mutex> lock(state.mutex);
  return state.made.count(op) != 0;
}

bool is_fp8(ncclDataType_t type) {
  return type == ncclFloat8e4m3 || type == ncclFloat8e5m2;
}

}  // namespace

ncclResult_t from_nccl(int result) {
  const bool shared = result >= ncclSuccess && result < ncclNumResults;
  return shared ? static_cast<ncclResult_t>(result) : ncclInternalError;
}

ncclResult_t reject_argument(const char* function, const char* argument, unsigned long long value) {
  count_rejection(function, argument, value);
  return ncclInvalidArgument;
}

ncclResult_t check_type(const char* function, ncclDataType_t type) {
  const bool defined = type >= ncclInt8 && type < ncclNumTypes;
  return defined ? ncclSuccess : reject_argument(function, "datatype", type);
}

// An FNUZ value is half of the OCP value with the same bits, so sums, averages, maxima and minima
// of the bits are right. Products and multipliers are not.
ncclResult_t check_reduction(const char* function, ncclDataType_t type, ncclRedOp_t op) {
  const ncclResult_t result = check_type(function, type);
  if (result != ncclSuccess) return result;
  const bool built_in = op >= ncclSum && op < ncclNumOps;
  if (!built_in && !known_operator(op)) return reject_argument(function, "op", op);
  if (!hostile(Hostile::kFnuz) || !is_fp8(type)) return ncclSuccess;
  if (built_in && op != ncclProd) return ncclSuccess;
  explain_once(function, "NVIDIA computes with OCP fp8; an FNUZ product would be wrong");
  return ncclInvalidUsage;
}

void add_operator(int op) {
  Operators& state = operators();
  const std::lock_guard<std::mutex> lock(state.mutex);
  state.made.insert(op);
}

void remove_operator(int op) {
  Operators& state = operators();
  const std::lock_guard<std::mutex> lock(state.mutex);
  const auto found = state.made.find(op);
  if (found != state.made.end()) state.made.erase(found);
}

}  // namespace forward

unsigned long forward_rccl_rejections() {
  return forward::rejections();
}
