#include "base/cores.h"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <string>
#include <thread>

namespace hetccl {
namespace {

int cores_of_affinity() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
  return static_cast<int>(std::thread::hardware_concurrency());  // more cores than the set holds
}

}  // namespace

int cores_of_quota(std::string_view cpu_max) {
  int64_t quota = 0, period = 0;
  const size_t space = cpu_max.find(' ');
  if (space == std::string_view::npos) return 0;
  const auto read = [](std::string_view text, int64_t& number) {
    return std::from_chars(text.data(), text.data() + text.size(), number).ec == std::errc();
  };
  const bool known = read(cpu_max.substr(0, space), quota) &&
                     read(cpu_max.substr(space + 1), period) && quota > 0 && period > 0;
  return known ? static_cast<int>(std::min<int64_t>((quota - 1) / period + 1, 1 << 20)) : 0;
}

int usable_cores() {
  std::ifstream file("/sys/fs/cgroup/cpu.max");  // of the namespace's own group
  std::string line;
  std::getline(file, line);
  const int quota = cores_of_quota(line);
  const int cores = cores_of_affinity();
  return std::max(1, quota > 0 ? std::min(quota, cores) : cores);
}

}  // namespace hetccl
