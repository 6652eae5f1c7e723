#include "device/gpu/pool.h"

#include <algorithm>
#include <cstdint>

namespace hetccl::device::gpu {
namespace {

constexpr size_t kAlignment = 512;
constexpr size_t kChunkBytes = size_t{16} << 20U;  // at least

// Rounds up. Returns `bytes` itself if no multiple is that large; the vendor then refuses it.
size_t rounded(size_t bytes) {
  if (bytes > SIZE_MAX - kAlignment) return bytes;
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

Pool::~Pool() {
  for (std::byte* chunk : chunks_) give_(chunk);
}

int Pool::grow(size_t bytes) {
  void* chunk = nullptr;
  const size_t whole = std::max(bytes, kChunkBytes);
  if (const int code = take_(&chunk, whole); code != 0) return code;
  std::lock_guard lock(mutex_);
  chunks_.insert(static_cast<std::byte*>(chunk));
  free_.emplace(static_cast<std::byte*>(chunk), whole);
  bytes_ += whole;
  return 0;
}

int Pool::reserve(size_t bytes) {
  const size_t known = this->bytes();
  return known < bytes ? grow(bytes - known) : 0;
}

size_t Pool::bytes() const {
  std::lock_guard lock(mutex_);
  return bytes_;
}

int Pool::allocate(void** memory, size_t bytes) {
  const size_t wanted = rounded(std::max<size_t>(bytes, 1));
  for (;;) {
    {
      std::lock_guard lock(mutex_);
      const auto found = std::find_if(free_.begin(), free_.end(),
                                      [&](const auto& block) { return block.second >= wanted; });
      if (found != free_.end()) {
        const auto [begin, size] = *found;
        free_.erase(found);
        if (size > wanted) free_.emplace(begin + wanted, size - wanted);
        used_.emplace(begin, wanted);
        *memory = begin;
        return 0;
      }
    }
    if (const int code = grow(wanted); code != 0) return code;
  }
}

void Pool::free(void* memory) {
  std::lock_guard lock(mutex_);
  const auto used = used_.find(static_cast<std::byte*>(memory));
  if (used == used_.end()) return;
  auto [begin, size] = *used;
  used_.erase(used);
  const auto after = free_.find(begin + size);
  if (after != free_.end() && !chunks_.contains(after->first)) {
    size += after->second;
    free_.erase(after);
  }
  const auto next = free_.upper_bound(begin);
  if (next != free_.begin() && !chunks_.contains(begin)) {
    const auto before = std::prev(next);
    if (before->first + before->second == begin) {
      before->second += size;
      return;
    }
  }
  free_.emplace(begin, size);
}

}  // namespace hetccl::device::gpu
