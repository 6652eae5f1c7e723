/// Tensors as the C API sees them: a pointer, a count and a type. Refuses what hetccl cannot carry.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include "api_call.h"

namespace hetccl::torch_backend {

/// Names the call in error messages.
struct Where {
  const char* operation;
  int rank;
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
