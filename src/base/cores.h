// How many cores this process may use.
#pragma once

#include <string_view>

namespace hetccl {

/// Those that its affinity allows, and no more than its control group's quota; 1 at least.
int usable_cores();

/// What a cpu.max of cgroup v2 allows ("400000 100000": four cores), rounded up; 0: no limit, or
/// nothing that can be read.
int cores_of_quota(std::string_view cpu_max);

}  // namespace hetccl
