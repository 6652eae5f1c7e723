// Host functions on streams.
#pragma once

#include "cuda/driver.h"
#include "hip/hip.h"

namespace forward {

/// Returns whether this thread runs a host function of a stream or of a graph.
[[nodiscard]] bool inside_host_function();

/// Wraps a HIP host function for the driver: `function(data)` calls `hip_function(user_data)`.
/// `repeats` is true for a graph's node, whose wrapper stays allocated for later launches.
struct WrappedFunction {
  cuda::HostFunction function;
  void* data;
};
[[nodiscard]] WrappedFunction wrap_host_function(hipHostFn_t hip_function, void* user_data,
                                                 bool repeats);

/// Frees a wrapper that the driver did not accept.
void discard(const WrappedFunction& wrapped);

}  // namespace forward
