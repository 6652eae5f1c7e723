// Memory that runs out at a chosen allocation of this thread, or of the threads with a name.
// Include it in one file of a test program only: it replaces operator new there.
#pragma once

#include <sys/prctl.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <new>
#include <string_view>

namespace hetccl::fake {

/// While it lives: the allocation of that number (from 0) fails, and `more` after it. Threads that
/// make allocations are counted together. One at a time.
class NoMemory {
 public:
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max() / 2;

  /// Counts allocations of the calling thread.
  explicit NoMemory(int64_t number, int64_t more = 0) : NoMemory(number, more, "") {}
  /// Counts allocations of threads with that name, which has at most 15 characters.
  NoMemory(std::string_view thread, int64_t number, int64_t more = 0)
      : NoMemory(number, more, thread) {}
  ~NoMemory() {
    active.store(false);
    mine = false;
  }
  NoMemory(const NoMemory&) = delete;
  NoMemory& operator=(const NoMemory&) = delete;
  /// Returns how many allocations were made so far.
  [[nodiscard]] static int64_t made() { return count.load(); }

  /// Called first by operator new.
  static void allocate() {
    if (!active.load(std::memory_order_acquire) || !is_counted()) return;
    const int64_t number = count.fetch_add(1);
    if (number >= first && number <= last) throw std::bad_alloc();
  }

 private:
  NoMemory(int64_t number, int64_t more, std::string_view thread) {
    std::memset(name, 0, sizeof name);
    std::memcpy(name, thread.data(), thread.size());
    first = number;
    last = number + more;
    count.store(0);
    mine = thread.empty();
    active.store(true, std::memory_order_release);
  }
  static bool is_counted() {
    if (name[0] == 0) return mine;
    char current[16] = {};
    prctl(PR_GET_NAME, current);
    return std::strcmp(current, name) == 0;
  }
  inline static std::atomic<bool> active{false};
  inline static thread_local bool mine = false;
  inline static char name[16] = {};
  inline static int64_t first = 0, last = 0;
  inline static std::atomic<int64_t> count{0};
};

}  // namespace hetccl::fake

void* operator new(size_t bytes) {
  hetccl::fake::NoMemory::allocate();
  if (void* memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
  throw std::bad_alloc();
}

void* operator new(size_t bytes, std::align_val_t alignment) {
  hetccl::fake::NoMemory::allocate();
  const auto multiple = static_cast<size_t>(alignment);
  const size_t rounded = (bytes + multiple - 1) / multiple * multiple;
  if (void* memory = std::aligned_alloc(multiple, rounded == 0 ? multiple : rounded)) return memory;
  throw std::bad_alloc();
}

void operator delete(void* memory) noexcept {
  std::free(memory);
}

void operator delete(void* memory, size_t) noexcept {
  std::free(memory);
}

void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}

void operator delete(void* memory, size_t, std::align_val_t) noexcept {
  std::free(memory);
}
