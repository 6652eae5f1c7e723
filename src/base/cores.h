// The cores that this process may use.
#pragma once

#include <string>
#include <string_view>

namespace hetccl {

/// The most threads that share one copy or reduction of host memory: HETCCL_HOST_THREADS.
inline constexpr int kMaxHostThreads = 8;

/// Returns the cores that its affinity allows, at most its control group's quota, at least 1.
int usable_cores();
/// Returns one process's share of the cores: three quarters of the affinity's cores divided by
/// `bound` processes, or of the control group's quota divided by `all`; at least 0.
int part_of_cores(int bound, int all);

/// Returns the cores that its affinity allows, "0-3,8"; "" if there are more than can be queried.
std::string list_of_cores();

/// Returns the cores that a cgroup v2 cpu.max allows ("400000 100000": four), rounded up; 0: no
/// limit, or unreadable.
int cores_of_quota(std::string_view cpu_max);

}  // namespace hetccl
