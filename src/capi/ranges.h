// NVTX ranges, which tools such as Nsight Systems show for a thread's calls. Without a tool, which
// NVTX finds by NVTX_INJECTION64_PATH at its first call, a range costs a few nanoseconds.
#pragma once

#include <cstdint>
#include <string_view>

namespace hetccl::capi {

/// A range in the domain "hetccl" on the calling thread, from here to the end of the scope.
class Range {
 public:
  /// `name` must be null-terminated, as literals are. `number` is shown beside it: the bytes of one
  /// block of a call, or the number of calls in a group.
  Range(std::string_view name, uint64_t number);
  ~Range();
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;
};

}  // namespace hetccl::capi
