#include "base/copy.h"

#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace hetccl {

#if defined(__x86_64__)

void copy_past_caches(void* dst, const void* src, size_t bytes) {
  constexpr size_t kLine = 64;
  auto* to = static_cast<std::byte*>(dst);
  const auto* from = static_cast<const std::byte*>(src);
  const size_t unaligned = (kLine - reinterpret_cast<uintptr_t>(to) % kLine) % kLine;
  if (bytes < unaligned + kLine) {
    if (bytes > 0) std::memcpy(to, from, bytes);
    return;
  }
  if (unaligned > 0) std::memcpy(to, from, unaligned);
  to += unaligned;
  from += unaligned;
  bytes -= unaligned;
  for (; bytes >= kLine; bytes -= kLine, to += kLine, from += kLine) {
    const auto* words = reinterpret_cast<const __m128i*>(from);
    auto* line = reinterpret_cast<__m128i*>(to);
    const __m128i a = _mm_loadu_si128(words), b = _mm_loadu_si128(words + 1);
    const __m128i c = _mm_loadu_si128(words + 2), d = _mm_loadu_si128(words + 3);
    _mm_stream_si128(line, a);
    _mm_stream_si128(line + 1, b);
    _mm_stream_si128(line + 2, c);
    _mm_stream_si128(line + 3, d);
  }
  if (bytes > 0) std::memcpy(to, from, bytes);
  _mm_sfence();  // nothing else orders such stores
}

#else

void copy_past_caches(void* dst, const void* src, size_t bytes) {
  if (bytes > 0) std::memcpy(dst, src, bytes);
}

#endif

void copy(void* dst, const void* src, size_t bytes, Caching caching) {
  if (caching == Caching::Bypass) return copy_past_caches(dst, src, bytes);
  if (bytes > 0) std::memcpy(dst, src, bytes);
}

}  // namespace hetccl
