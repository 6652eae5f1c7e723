/// Tensors as the C API sees them: a pointer, a count and a type. Refuses those that hetccl cannot
/// carry.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include "api_call.h"

namespace hetccl::torch_backend {

/// Names the call, for error messages.
struct Where {
  const char* operation;
  int rank;
};

/// Throws unless the elements of `tensor` fill a contiguous piece of memory, in any order.
/// `argument` names it.
void check_dense(const Where& where, const std::string& argument, const at::Tensor& tensor);
/// Throws unless the tensor is dense. (It has been made contiguous before.)
void check_tensor(const Where& where, const std::string& argument, const at::Tensor& tensor);
/// Throws unless both have the same dtype.
void check_same_type(const Where& where, const std::string& argument, const at::Tensor& tensor,
                     const at::Tensor& like);
/// Throws unless `tensor` has `numel` elements. `rule` says why it must.
void check_numel(const Where& where, const std::string& argument, const at::Tensor& tensor,
                 int64_t numel, const std::string& rule);

/// The elements to move for `tensor`. Types unknown to hetccl move as bytes, complex ones as pairs.
[[nodiscard]] Elements movable(const at::Tensor& tensor);
/// The reduction for `tensor`. bool reduces as in Gloo and NCCL: sum is "or", product is "and".
/// Reads the factor of a pre-multiplied sum now, and rounds it to the tensor's type.
[[nodiscard]] Reduction reducible(const Where& where, const at::Tensor& tensor,
                                  const c10d::ReduceOp& op);

}  // namespace hetccl::torch_backend
