#include "tensors.h"

#include <ATen/Functions.h>
#include <c10/core/ScalarType.h>
#include <c10/util/Exception.h>

#include <cstring>

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
    case at::kFloat8_e4m3fn:
      return hetcclFloat8e4m3;
    case at::kFloat8_e5m2:
      return hetcclFloat8e5m2;
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
    case c10d::ReduceOp::BXOR:
      return hetcclBxor;
    default:
      TORCH_CHECK_TYPE(false, at_call(where),
                       "bool tensors reduce by SUM, PRODUCT, MIN, MAX, BAND, BOR or BXOR; convert "
                       "to an integer or floating-point type for others");
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
      return hetcclSum;  // with a factor
    case c10d::ReduceOp::BAND:
      return hetcclBand;
    case c10d::ReduceOp::BOR:
      return hetcclBor;
    case c10d::ReduceOp::BXOR:
      return hetcclBxor;
    default:
      TORCH_CHECK_NOT_IMPLEMENTED(false, at_call(where), "an operator that hetccl does not know");
  }
}

/// The factor of a pre-multiplied sum, as one element of `type`.
std::array<std::byte, 8> factor_of(const Where& where, const c10d::ReduceOp& op,
                                   at::ScalarType type) {
  const auto supplement =
      c10::dynamic_intrusive_pointer_cast<c10d::NCCLPreMulSumSupplement>(op.supplement_);
  TORCH_CHECK_VALUE(supplement != nullptr, at_call(where),
                    "ReduceOp.PREMUL_SUM without a factor; make it by "
                    "torch.distributed._make_nccl_premul_sum(factor)");
  const at::Tensor& given = supplement->tensor_factor;
  TORCH_CHECK_VALUE(!given.defined() || given.device().is_cpu(), at_call(where),
                    "the factor of ReduceOp.PREMUL_SUM is on ",
                    given.defined() ? given.device().str() : "",
                    "; pass a number or a host tensor");
  const at::Tensor element = given.defined()
                                 ? given.detach().reshape({1}).to(type).contiguous()
                                 : at::full({1}, supplement->double_factor, at::kDouble).to(type);
  std::array<std::byte, 8> bytes{};
  std::memcpy(bytes.data(), element.const_data_ptr(), element.element_size());
  return bytes;
}

}  // namespace

void check_dense(const Where& where, const std::string& argument, const at::Tensor& tensor) {
  TORCH_CHECK_VALUE(tensor.defined(), at_call(where), argument, " is not a tensor with storage");
  TORCH_CHECK_VALUE(tensor.layout() == at::kStrided, at_call(where), argument,
                    " is sparse, which all_reduce alone takes: call .to_dense() first");
  TORCH_CHECK_VALUE(tensor.is_non_overlapping_and_dense(), at_call(where), argument,
                    " is not contiguous (shape ", tensor.sizes(), ", strides ", tensor.strides(),
                    "): its elements overlap or lie apart; pass tensor.contiguous()");
  TORCH_CHECK_VALUE(!tensor.is_conj() && !tensor.is_neg(), at_call(where), argument,
                    " is a lazy conjugate or negative; pass tensor.resolve_conj().resolve_neg()");
}

void check_tensor(const Where& where, const std::string& argument, const at::Tensor& tensor) {
  check_dense(where, argument, tensor);
  TORCH_INTERNAL_ASSERT(tensor.is_contiguous(), argument, " was to be made contiguous");
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
  const at::ScalarType type = tensor.scalar_type();
  if (type == at::kBool) return {movable(tensor), bool_reduction(where, op), std::nullopt};
  Reduction reduce{movable(tensor), reduction(where, op), std::nullopt};
  TORCH_CHECK_TYPE(!tensor.is_complex() || reduce.op == hetcclSum || reduce.op == hetcclAvg,
                   at_call(where), "complex tensors reduce by SUM, AVG and PREMUL_SUM only");
  const at::ScalarType real = c10::toRealValueType(type);
  TORCH_CHECK_TYPE(real_type(real).has_value(), at_call(where), c10::toString(type),
                   " tensors can be moved but not reduced; convert to float32, float16 or "
                   "bfloat16 first");
  const bool bitwise = reduce.op == hetcclBand || reduce.op == hetcclBor || reduce.op == hetcclBxor;
  TORCH_CHECK_TYPE(!bitwise || c10::isIntegralType(real, false), at_call(where),
                   "bitwise reductions combine integers, and the tensor has ", c10::toString(type),
                   " elements; convert to an integer type, or view(dtype) it as "
                   "one");
  if (op == c10d::ReduceOp::PREMUL_SUM) {
    TORCH_CHECK_TYPE(c10::isFloatingType(real), at_call(where), c10::toString(type),
                     " tensors have no pre-multiplied sum; convert to a floating-point type first");
    reduce.factor = factor_of(where, op, real);
  }
  return reduce;
}

}  // namespace hetccl::torch_backend
