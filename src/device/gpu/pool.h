// Memory of one kind, kept for good. Taking and returning it calls no driver, which might wait for
// work that waits for this process.
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
  /// The vendor's calls return 0, or its error.
  using Take = std::function<int(void** memory, size_t bytes)>;
  using Give = std::function<int(void* memory)>;

  Pool(Take take, Give give) : take_(std::move(take)), give_(std::move(give)) {}
  /// Returns all memory to the vendor, even if in use.
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  /// Grows until it has taken that many bytes. Returns 0, or the vendor's error.
  int reserve(size_t bytes);
  /// Returns 0, or the vendor's error if the pool is full and cannot grow. Aligned to 512 bytes.
  int allocate(void** memory, size_t bytes);
  void free(void* memory);
  /// Returns the bytes taken from the vendor, in use or not.
  [[nodiscard]] size_t bytes() const;

 private:
  /// Called without the lock: the vendor may wait for work whose end needs the pool.
  int grow(size_t bytes);

  const Take take_;
  const Give give_;
  mutable std::mutex mutex_;           // guards what follows
  std::set<std::byte*> chunks_;        // as the vendor gave them
  size_t bytes_ = 0;                   // in all chunks
  std::map<std::byte*, size_t> free_;  // blocks; adjacent ones of a chunk are merged
  std::map<std::byte*, size_t> used_;
};

}  // namespace hetccl::device::gpu
