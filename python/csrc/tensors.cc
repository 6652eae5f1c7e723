#include "tensors.h"

#include <c10/core/ScalarType.h>
#include <c10/util/Exception.h>

#include <optional>

namespace hetccl::torch_backend {
namespace {

std::optional<hetcclDataType_t> real_type(at::ScalarType type) {
  switch (type) {
    case at::kChar:
      return hetcclInt8;
    case at::kByte:
      return hetcclUint8;
    case at::kShort:
      return hetcclInt16;
    case at::kUInt16:
      return hetcclUint16;
    case at::kInt:
      return hetcclInt32;
    case at::kUInt32:
      return hetcclUint32;
    case at::kLong:
      return hetcclInt64;
    case at::kUInt64:
      return hetcclUint64;
    case at::kHalf:
      return hetcclFloat16;
    case at::kFloat:
      return hetcclFloat32;
    case at::kDouble:
      return hetcclFloat64;
    case at::kBFloat16:
      return hetcclBfloat16;
    default:
      return std::nullopt;
  }
}

std::string at_call(const Where& where) {
  return c10::str("hetccl: ", where.operation, " on rank ", where.rank, ": ");
}

hetcclRedOp_t bool_reduction(const Where& where, c10d::ReduceOp::RedOpType op) {
  switch (op) {
    case c10d::ReduceOp::SUM:
    case c10d::ReduceOp::MAX:
    case c10d::ReduceOp::BOR:
      return hetcclMax;
    case c10d::ReduceOp::PRODUCT:
    case c10d::ReduceOp::MIN:
    case c10d::ReduceOp::BAND:
      return hetcclMin;
    default:
      TORCH_CHECK_TYPE(false, at_call(where),
                       "bool tensors reduce by SUM, PRODUCT, MIN, MAX, BAND or BOR; convert to an "
                       "integer or floating-point type for others");
  }
}

hetcclRedOp_t reduction(const Where& where, c10d::ReduceOp::RedOpType op) {
  switch (op) {
    case c10d::ReduceOp::SUM:
      return hetcclSum;
    case c10d::ReduceOp::AVG:
      return hetcclAvg;
    case c10d::ReduceOp::PRODUCT:
      return hetcclProd;
    case c10d::ReduceOp::MIN:
      return hetcclMin;
    case c10d::ReduceOp::MAX:
      return hetcclMax;
    case c10d::ReduceOp::PREMUL_SUM:
      TORCH_CHECK_NOT_IMPLEMENTED(
          false, at_call(where),
          "ReduceOp.PREMUL_SUM is not supported; multiply the tensor first and use ReduceOp.SUM");
    default:
      TORCH_CHECK_NOT_IMPLEMENTED(
          false, at_call(where),
          "bitwise reductions are not supported on this type; hetccl reduces by SUM, AVG, PRODUCT, "
          "MIN and MAX");
  }
}

}  // namespace

void check_tensor(const Where& where, const std::string& argument, const at::Tensor& tensor) {
  TORCH_CHECK_VALUE(tensor.defined(), at_call(where), argument, " is not a tensor with storage");
  TORCH_CHECK_VALUE(tensor.layout() == at::kStrided, at_call(where), argument,
                    " is sparse; hetccl moves dense tensors only: call .to_dense() first");
  TORCH_CHECK_VALUE(tensor.device().is_cpu(), at_call(where), argument, " is on ",
                    tensor.device().str(),
                    "; this build of hetccl moves host tensors only: call .cpu() first");
  TORCH_CHECK_VALUE(tensor.is_contiguous(), at_call(where), argument, " is not contiguous (shape ",
                    tensor.sizes(), ", strides ", tensor.strides(), "); pass tensor.contiguous()");
  TORCH_CHECK_VALUE(!tensor.is_conj() && !tensor.is_neg(), at_call(where), argument,
                    " is a lazy conjugate or negative; pass tensor.resolve_conj().resolve_neg()");
}

void check_same_type(const Where& where, const std::string& argument, const at::Tensor& tensor,
                     const at::Tensor& like) {
  TORCH_CHECK_TYPE(tensor.scalar_type() == like.scalar_type(), at_call(where), argument, " has ",
                   c10::toString(tensor.scalar_type()), " elements where ",
                   c10::toString(like.scalar_type()), " is needed; convert one with .to(dtype)");
}

void check_numel(const Where& where, const std::string& argument, const at::Tensor& tensor,
                 int64_t numel, const std::string& rule) {
  TORCH_CHECK_VALUE(tensor.numel() == numel, at_call(where), argument, " has ", tensor.numel(),
                    " elements, but must have ", numel, ": ", rule);
}

Elements movable(const at::Tensor& tensor) {
  const auto count = static_cast<size_t>(tensor.numel());
  if (tensor.is_complex()) {
    return {2 * count, *real_type(c10::toRealValueType(tensor.scalar_type()))};
  }
  if (const auto type = real_type(tensor.scalar_type())) return {count, *type};
  return {count * tensor.element_size(), hetcclUint8};
}

Reduction reducible(const Where& where, const at::Tensor& tensor, const c10d::ReduceOp& op) {
  if (tensor.scalar_type() == at::kBool) return {movable(tensor), bool_reduction(where, op)};
  const hetcclRedOp_t reduce = reduction(where, op);
  if (tensor.is_complex()) {
    TORCH_CHECK_TYPE(reduce == hetcclSum || reduce == hetcclAvg, at_call(where),
                     "complex tensors reduce by SUM and AVG only");
    return {movable(tensor), reduce};
  }
  TORCH_CHECK_TYPE(real_type(tensor.scalar_type()).has_value(), at_call(where),
                   c10::toString(tensor.scalar_type()),
                   " tensors can be moved but not reduced; convert to float32, float16 or "
                   "bfloat16 first");
  return {movable(tensor), reduce};
}

bool adjacent(const std::vector<at::Tensor>& parts) {
  const char* next = nullptr;
  for (const at::Tensor& part : parts) {
    const auto* begin = static_cast<const char*>(part.const_data_ptr());
    if (next != nullptr && begin != next) return false;
    if (!part.is_contiguous() || begin == nullptr) return false;
    next = begin + part.nbytes();
  }
  return !parts.empty();
}

}  // namespace hetccl::torch_backend
