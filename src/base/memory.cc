#include "base/memory.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <fstream>
#include <string>

namespace hetccl {

size_t memory_of_limit(std::string_view memory_max) {
  size_t bytes = 0;
  const char* const end = memory_max.data() + memory_max.size();
  const bool known = std::from_chars(memory_max.data(), end, bytes).ec == std::errc();
  return known && bytes > 0 ? bytes : SIZE_MAX;
}

size_t usable_memory() {
  const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
  const size_t all =
      pages > 0 && page > 0 ? static_cast<size_t>(pages) * static_cast<size_t>(page) : size_t{0};
  std::ifstream file("/sys/fs/cgroup/memory.max");  // of this namespace's group
  std::string line;
  std::getline(file, line);
  return std::min(all, memory_of_limit(line));
}

}  // namespace hetccl
