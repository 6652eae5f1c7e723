#include "base/heap.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <memory>
#include <thread>
#include <vector>

namespace hetccl {
namespace {

#if defined(__GLIBC__) && !defined(HETCCL_UNDER_ASAN) && !defined(HETCCL_UNDER_TSAN)

size_t resident_bytes() {
  size_t total = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> total >> resident;
  return resident * static_cast<size_t>(::sysconf(_SC_PAGESIZE));
}

TEST_CASE("what an ended thread has freed goes back to the system") {
  constexpr size_t kBlock = 64 << 10, kBlocks = 1024;  // each below malloc's threshold for mmap
  const size_t before = resident_bytes();
  std::thread([] {
    std::vector<std::unique_ptr<char[]>> blocks;
    for (size_t i = 0; i < kBlocks; ++i) {
      blocks.push_back(std::make_unique<char[]>(kBlock));
      std::memset(blocks.back().get(), 1, kBlock);
    }
    // Keep the last one: it alone prevents the heap from shrinking by itself.
    static_cast<void>(new std::unique_ptr<char[]>(std::move(blocks.back())));
  }).join();
  CHECK(resident_bytes() > before + kBlock * kBlocks / 2);
  return_freed_memory();
  CHECK(resident_bytes() < before + kBlock * kBlocks / 4);
}

#endif

}  // namespace
}  // namespace hetccl
