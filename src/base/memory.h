// How much memory this process may use.
#pragma once

#include <cstddef>
#include <string_view>

namespace hetccl {

/// The host's memory, or its control group's limit if that is less; in bytes.
size_t usable_memory();

/// What a memory.max of cgroup v2 allows; SIZE_MAX: no limit, or nothing that can be read.
size_t memory_of_limit(std::string_view memory_max);

}  // namespace hetccl
