#include "transport/verbs/locked_memory.h"

#include <sys/mman.h>
#include <sys/resource.h>

#include <cstdint>

namespace hetccl::transport::verbs {

// CAP_IPC_LOCK lifts the limit, but only in the kernel's first user namespace, and a process cannot
// tell whether its own is the first. So a registration beyond the limit is tried.
size_t lockable_bytes(const Device& device, size_t needed) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return SIZE_MAX;
  if (limit.rlim_cur >= needed) return limit.rlim_cur;
  const size_t beyond = limit.rlim_cur + kPageBytes;
  void* memory = ::mmap(nullptr, beyond, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return limit.rlim_cur;
  bool again = false;
  const bool possible = device.register_memory(memory, beyond, abi::kLocalWrite, &again).ok();
  ::munmap(memory, beyond);
  return possible ? SIZE_MAX : limit.rlim_cur;
}

bool locks_freely(const Device& device) {
  constexpr rlim_t kPlenty = rlim_t{16} << 30U, kMostTried = rlim_t{64} << 20U;
  rlimit limit{};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur >= kPlenty) return true;
  return limit.rlim_cur <= kMostTried && lockable_bytes(device, SIZE_MAX) == SIZE_MAX;
}

Status too_little_lockable(size_t channels, size_t bytes, size_t lockable) {
  constexpr unsigned kKib = 10;
  return error(
      ErrorCode::SystemError,
      "%zu RDMA connections need %zu KiB of locked memory in all, and this process may lock %zu "
      "KiB: raise the limit (ulimit -l unlimited; LimitMEMLOCK=infinity in a service), or set "
      "HETCCL_TRANSPORT=tcp",
      channels, bytes >> kKib, lockable >> kKib);
}

}  // namespace hetccl::transport::verbs
