/// All differences between the versions of torch that hetccl is built for.
#pragma once

#include <torch/csrc/distributed/c10d/Work.hpp>

namespace hetccl::torch_backend {

/// The type of a coalesced reduce-scatter of tensors, which torch 2.11 does not name.
template <typename OpType = c10d::OpType>
constexpr OpType reduce_scatter_coalesced_type() {
  if constexpr (requires { OpType::REDUCE_SCATTER_TENSOR_COALESCED; }) {
    return OpType::REDUCE_SCATTER_TENSOR_COALESCED;
  } else {
    return OpType::COALESCED;
  }
}

}  // namespace hetccl::torch_backend
