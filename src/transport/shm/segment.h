// The memory that two ranks share for one channel: a byte ring each way, and whether either rank
// sleeps. Each word that one side writes while the other reads has its own cache line.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/waker.h"

namespace hetccl::transport::shm {

/// The size of one core's private cache. When the writer comes round to the same lines, the
/// reader's cache has evicted them; writing lines that another core's cache holds takes two to
/// seven times as long.
inline constexpr size_t kRingBytes = size_t{1} << 20U;
inline constexpr size_t kMacBytes = 32;

/// Counters only grow; their difference is the ring's fill. Both ends check it, because the other
/// end is another process.
struct Ring {
  alignas(64) std::atomic<uint64_t> written{0};
  alignas(64) std::atomic<uint64_t> read{0};
  alignas(64) std::byte bytes[kRingBytes];
};

/// The words that one end writes.
struct Side {
  alignas(64) std::atomic<uint32_t> sleeping{0};  ///< the peer must ring my waker when it moves
                                                  ///< something
  std::atomic<uint32_t> closed{0};                ///< I send nothing more
  WakerAddress waker;                             ///< written before the channel starts
};

/// The creator, which is the lower rank, owns sides[0] and writes rings[0].
struct Segment {
  /// 0 until the other rank has attached and written `mac`, its proof of the job's secret.
  alignas(64) std::atomic<uint32_t> accepted{0};
  uint8_t mac[kMacBytes];
  Side sides[2];
  Ring rings[2];
};
static_assert(std::atomic<uint64_t>::is_always_lock_free);

/// A window begins on the first page after the segment, and ends with the memory.
inline constexpr size_t kWindowBegin = (sizeof(Segment) + 4095) / 4096 * 4096;
inline constexpr size_t kMaxWindow = size_t{1} << 30U;
constexpr size_t bytes_with(size_t window) {
  return window == 0 ? sizeof(Segment) : kWindowBegin + window;
}

}  // namespace hetccl::transport::shm
