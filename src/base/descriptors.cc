#include "base/descriptors.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <mutex>

namespace hetccl {

namespace {

// Room for what the rest of the process may open meanwhile.
constexpr size_t kRoom = 256;

size_t count_open() {
  DIR* folder = ::opendir("/proc/self/fd");
  if (folder == nullptr) return kRoom;
  size_t count = 0;
  while (::readdir(folder) != nullptr) ++count;
  ::closedir(folder);
  return count;
}

// The system assigns the lowest free number: if this one is free, so are those above it.
bool is_free(rlim_t number) {
  return number <= INT_MAX && ::fcntl(static_cast<int>(number), F_GETFD) < 0 && errno == EBADF;
}

}  // namespace

Status reserve_descriptors(size_t more) {
  static std::mutex raising;
  const std::lock_guard lock(raising);
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0)
    return system_error("asking for the limit of descriptors", errno);
  const rlim_t wanted_free = more + kRoom;
  if (limit.rlim_cur > wanted_free && is_free(limit.rlim_cur - wanted_free)) return {};
  const rlim_t needed = count_open() + more;
  if (limit.rlim_max < needed)
    return error(ErrorCode::SystemError,
                 "%zu connections take %llu descriptors, and this process may open %llu: raise its "
                 "hard limit (ulimit -Hn)",
                 more, static_cast<unsigned long long>(needed),
                 static_cast<unsigned long long>(limit.rlim_max));
  const rlim_t wanted = std::min(needed + kRoom, limit.rlim_max);
  if (limit.rlim_cur >= wanted) return {};
  limit.rlim_cur = wanted;
  if (::setrlimit(RLIMIT_NOFILE, &limit) != 0)
    return system_error("raising the limit of descriptors", errno);
  return {};
}

}  // namespace hetccl
