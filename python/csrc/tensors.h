/// Tensors as the C API sees them: a pointer, a count and a type. Refuses what hetccl cannot carry.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include "hetccl/hetccl.h"

namespace hetccl::torch_backend {

/// Names the call in error messages.
struct Where {
  const char* operation;
  int rank;
};

/// `count` elements of `type` make up one tensor.
struct Elements {
  size_t count;
  hetcclDataType_t type;
};

/// A reduction as hetccl runs it: by a built-in operator, or by a pre-multiplied sum, whose factor
/// is an element in the first bytes.
struct Reduction {
  Elements elements;
  hetcclRedOp_t op;
  std::optional<std::array<std::byte, 8>> factor;

  /// Calls `run(op)` with the operator that it is on `comm`, made for that call where need be.
  template <typename Run>
  hetcclResult_t with_op(hetcclComm_t comm, Run&& run) const {
    if (!factor) return run(op);
    hetcclRedOp_t made{};
    auto scalar = *factor;
    const hetcclResult_t created = hetcclRedOpCreatePreMulSum(&made, scalar.data(), elements.type,
                                                              hetcclScalarHostImmediate, comm);
    if (created != hetcclSuccess) return created;
    const hetcclResult_t result = run(made);
    const hetcclResult_t destroyed = hetcclRedOpDestroy(made, comm);
    return result == hetcclSuccess ? destroyed : result;
  }
};

/// Throws unless the elements of `tensor` lie side by side, in whatever order. `argument` names it.
void check_dense(const Where& where, const std::string& argument, const at::Tensor& tensor);
/// Throws unless it is dense; it has been made contiguous.
void check_tensor(const Where& where, const std::string& argument, const at::Tensor& tensor);
/// Throws unless both have one dtype.
void check_same_type(const Where& where, const std::string& argument, const at::Tensor& tensor,
                     const at::Tensor& like);
/// Throws unless `tensor` has `numel` elements. `rule` says why it should.
void check_numel(const Where& where, const std::string& argument, const at::Tensor& tensor,
                 int64_t numel, const std::string& rule);

/// How to move `tensor`. Types unknown to hetccl move as bytes, complex ones as pairs.
[[nodiscard]] Elements movable(const at::Tensor& tensor);
/// How to reduce `tensor`. bool reduces as Gloo and NCCL do: sum is "or", product is "and". The
/// factor of a pre-multiplied sum is read now, and rounded to the tensor's type.
[[nodiscard]] Reduction reducible(const Where& where, const at::Tensor& tensor,
                                  const c10d::ReduceOp& op);

}  // namespace hetccl::torch_backend
