#include "transport/verbs/locked_memory.h"

#include <sys/resource.h>

#include <cerrno>
#include <fstream>
#include <string>

namespace hetccl::transport::verbs {
namespace {

bool is_unlimited() {
  constexpr unsigned kIpcLock = 14;  // CAP_IPC_LOCK
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (!line.starts_with("CapEff:")) continue;
    return (std::strtoull(line.c_str() + 7, nullptr, 16) >> kIpcLock & 1U) != 0;
  }
  return false;
}

}  // namespace

Status check_locked_memory(size_t bytes, size_t channels) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0)
    return system_error("asking for the limit of locked memory", errno);
  if (limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= bytes || is_unlimited()) return {};
  constexpr unsigned kKib = 10;
  return error(
      ErrorCode::SystemError,
      "%zu RDMA connections more need %zu KiB of locked memory in all, and this process may "
      "lock %llu KiB: raise the limit (ulimit -l unlimited; LimitMEMLOCK=infinity in a "
      "service), or set HETCCL_TRANSPORT=tcp",
      channels, bytes >> kKib, static_cast<unsigned long long>(limit.rlim_cur >> kKib));
}

}  // namespace hetccl::transport::verbs
