// Copies of host memory for who knows what becomes of the copy.
#pragma once

#include <cstddef>

namespace hetccl {

/// Whether a copy is to be found in the caches, since somebody reads it soon.
enum class Caching { Keep, Bypass };

/// One of several.
struct Copy {
  void* dst = nullptr;
  const void* src = nullptr;
  size_t bytes = 0;
};

/// As memcpy, past the caches: faster by half where nobody reads the copy soon, since its lines are
/// not read before they are written. The copy is visible to whoever sees a later release.
void copy_past_caches(void* dst, const void* src, size_t bytes);
/// The one or the other.
void copy(void* dst, const void* src, size_t bytes, Caching caching);

}  // namespace hetccl
