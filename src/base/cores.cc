#include "base/cores.h"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <climits>
#include <fstream>
#include <optional>
#include <string>
#include <thread>

namespace hetccl {
namespace {

// Returns nothing if there are more cores than the set holds.
std::optional<cpu_set_t> affinity() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) return set;
  return std::nullopt;
}

int cores_of_affinity() {
  const auto set = affinity();
  return set ? CPU_COUNT(&*set) : static_cast<int>(std::thread::hardware_concurrency());
}

// Returns INT_MAX if there is no quota.
int quota() {
  std::ifstream file("/sys/fs/cgroup/cpu.max");  // of this namespace's group
  std::string line;
  std::getline(file, line);
  const int cores = cores_of_quota(line);
  return cores > 0 ? cores : INT_MAX;
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
  return std::max(1, std::min(quota(), cores_of_affinity()));
}

int part_of_cores(int bound, int all) {
  const auto part = [](int cores, int n) { return int64_t{cores} * 3 / 4 / n; };
  return static_cast<int>(std::min(part(cores_of_affinity(), bound), part(quota(), all)));
}

std::string list_of_cores() {
  const auto set = affinity();
  std::string text;
  for (int first = 0; set && first < CPU_SETSIZE; ++first) {
    if (!CPU_ISSET(first, &*set)) continue;
    int last = first;
    while (last + 1 < CPU_SETSIZE && CPU_ISSET(last + 1, &*set)) ++last;
    text += (text.empty() ? "" : ",") + std::to_string(first);
    if (last > first) text += "-" + std::to_string(last);
    first = last;
  }
  return text;
}

}  // namespace hetccl
