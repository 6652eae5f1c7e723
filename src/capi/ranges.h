// NVTX ranges: what tools such as Nsight Systems show of a thread's calls. Without a tool, which
// NVTX finds by NVTX_INJECTION64_PATH at its first call, they cost a few nanoseconds.
#pragma once

#include <cstdint>
#include <string_view>

namespace hetccl::capi {

/// From here to the end of the scope, on the calling thread, in the domain "hetccl".
class Range {
 public:
  /// `name` ends with a zero, as literals do; `number` is shown beside it: a call's bytes, of one
  /// block, or the calls of a group.
  Range(std::string_view name, uint64_t number);
  ~Range();
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;
};

}  // namespace hetccl::capi
