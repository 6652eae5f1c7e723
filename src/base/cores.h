// How many cores this process may use.
#pragma once

#include <string>
#include <string_view>

namespace hetccl {

/// The most threads that share one copy or reduction of host memory: HETCCL_HOST_THREADS.
inline constexpr int kMaxHostThreads = 8;

/// Those that its affinity allows, and no more than its control group's quota; 1 at least.
int usable_cores();
/// The part of one of `bound` processes that its affinity's cores are shared by, of `all` that its
/// control group's quota is: three quarters of what they may use; 0 at least.
int part_of_cores(int bound, int all);

/// Those that its affinity allows: "0-3,8"; "" where there are more than can be asked for.
std::string list_of_cores();

/// What a cpu.max of cgroup v2 allows ("400000 100000": four cores), rounded up; 0: no limit, or
/// nothing that can be read.
int cores_of_quota(std::string_view cpu_max);

}  // namespace hetccl
