// Copies of host memory, with or without the caches.
#pragma once

#include <cstddef>

namespace hetccl {

/// Whether a copy should stay in the caches, because it will be read soon.
enum class Caching { Keep, Bypass };

/// One of several copies.
struct Copy {
  void* dst = nullptr;
  const void* src = nullptr;
  size_t bytes = 0;
};

/// Copies as memcpy, but bypasses the caches: faster by half if nobody reads the copy soon, because
/// lines are not read before they are written. A later release makes the copy visible.
void copy_past_caches(void* dst, const void* src, size_t bytes);
/// Copies with or without the caches.
void copy(void* dst, const void* src, size_t bytes, Caching caching);

}  // namespace hetccl
