// The memory that this process may use.
#pragma once

#include <cstddef>
#include <string_view>

namespace hetccl {

/// Returns the host's memory, or its control group's limit if that is less, in bytes.
size_t usable_memory();

/// Parses a cgroup v2 memory.max, in bytes. Returns SIZE_MAX if it sets no limit or is no number.
size_t memory_of_limit(std::string_view memory_max);

}  // namespace hetccl
