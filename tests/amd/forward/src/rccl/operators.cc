// Operators that multiply before they add.
#include "core/hostile.h"
#include "core/reject.h"
#include "rccl/frame.h"

using namespace forward;

ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar, ncclDataType_t datatype,
                                      ncclScalarResidence_t residence, ncclComm_t comm) {
  return with_nccl(__func__, [&](const nccl::Library& nccl) {
    const ncclResult_t result = check_type("ncclRedOpCreatePreMulSum", datatype);
    if (result != ncclSuccess) return result;
    if (residence != ncclScalarDevice && residence != ncclScalarHostImmediate) {
      return reject_argument("ncclRedOpCreatePreMulSum", "residence", residence);
    }
    if (op == nullptr) return ncclInvalidArgument;
    int created = 0;
    const int code = nccl.op_create(&created, scalar, datatype, residence, comm);
    if (code == 0) add_operator(created);
    *op = static_cast<ncclRedOp_t>(created);
    return from_nccl(code);
  });
}

ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm) {
  return with_nccl(__func__, [&](const nccl::Library& nccl) {
    const int code = nccl.op_destroy(op, comm);
    if (code == 0) remove_operator(op);
    return from_nccl(code);
  });
}
