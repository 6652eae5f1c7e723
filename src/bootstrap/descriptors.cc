#include "bootstrap/descriptors.h"

#include <dirent.h>
#include <sys/resource.h>

#include <cerrno>

namespace hetccl::bootstrap {

namespace {

// What the rest of the process may want to open meanwhile.
constexpr size_t kRoom = 256;

size_t count_open() {
  DIR* folder = ::opendir("/proc/self/fd");
  if (folder == nullptr) return kRoom;
  size_t count = 0;
  while (::readdir(folder) != nullptr) ++count;
  ::closedir(folder);
  return count;
}

}  // namespace

Status reserve_descriptors(size_t more) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0)
    return system_error("asking for the limit of descriptors", errno);
  const rlim_t wanted = count_open() + more + kRoom;
  if (limit.rlim_cur >= wanted) return {};
  if (limit.rlim_max < wanted)
    return error(Code::SystemError,
                 "%zu connections take %llu descriptors, and this process may open %llu: raise the "
                 "hard limit (ulimit -Hn) where the unique id is made",
                 more, static_cast<unsigned long long>(wanted),
                 static_cast<unsigned long long>(limit.rlim_max));
  limit.rlim_cur = wanted;
  if (::setrlimit(RLIMIT_NOFILE, &limit) != 0)
    return system_error("raising the limit of descriptors", errno);
  return {};
}

}  // namespace hetccl::bootstrap
