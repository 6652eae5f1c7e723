/// Tensors as the C API sees them: a pointer, a count and a type. Refuses what hetccl cannot carry.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <vector>

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

/// A reduction as hetccl runs it.
struct Reduction {
  Elements elements;
  hetcclRedOp_t op;
};

/// Throws unless `tensor` is dense, contiguous and in host memory. `argument` names it.
void check_tensor(const Where& where, const std::string& argument, const at::Tensor& tensor);
/// Throws unless both have one dtype.
void check_same_type(const Where& where, const std::string& argument, const at::Tensor& tensor,
                     const at::Tensor& like);
/// Throws unless `tensor` has `numel` elements. `rule` says why it should.
void check_numel(const Where& where, const std::string& argument, const at::Tensor& tensor,
                 int64_t numel, const std::string& rule);

/// How to move `tensor`. Types unknown to hetccl move as bytes, complex ones as pairs.
[[nodiscard]] Elements movable(const at::Tensor& tensor);
/// How to reduce `tensor`. bool reduces as Gloo and NCCL do: sum is "or", product is "and".
[[nodiscard]] Reduction reducible(const Where& where, const at::Tensor& tensor,
                                  const c10d::ReduceOp& op);

/// True when `parts` lie one after the other in memory, so that they are one buffer.
[[nodiscard]] bool adjacent(const std::vector<at::Tensor>& parts);

}  // namespace hetccl::torch_backend
