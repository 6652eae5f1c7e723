// Memory of one kind, kept for good: taking and giving it back calls no driver, which may wait
// there for work that waits for this process.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <mutex>
#include <set>

namespace hetccl::device::gpu {

/// Thread-safe.
class Pool {
 public:
  /// The vendor's calls: 0, or its error.
  using Take = std::function<int(void** memory, size_t bytes)>;
  using Give = std::function<int(void* memory)>;

  Pool(Take take, Give give) : take_(std::move(take)), give_(std::move(give)) {}
  /// Gives all of it back to the vendor, in use or not.
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  /// Grows until it has been given so many bytes in all. 0, or the vendor's error.
  int reserve(size_t bytes);
  /// 0, or the vendor's error where the pool has no room and could not grow. Aligned to 512 bytes.
  int allocate(void** memory, size_t bytes);
  void free(void* memory);
  /// Of the vendor's, in use or not.
  [[nodiscard]] size_t bytes() const;

 private:
  /// Without the lock: the vendor may wait for work whose end takes the pool.
  int grow(size_t bytes);

  const Take take_;
  const Give give_;
  mutable std::mutex mutex_;           // guards what follows
  std::set<std::byte*> chunks_;        // as the vendor gave them
  size_t bytes_ = 0;                   // of them
  std::map<std::byte*, size_t> free_;  // blocks, no two of one chunk side by side
  std::map<std::byte*, size_t> used_;
};

}  // namespace hetccl::device::gpu
