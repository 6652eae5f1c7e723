// What two ranks share for one channel: a byte ring each way, and whether either of them sleeps.
// Every word that one side writes while the other reads has a cache line of its own.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/waker.h"

namespace hetccl::transport::shm {

/// As much as a core's own cache: when the writer comes round, the reader's has given up what it
/// has read. What another core's cache holds takes two to seven times as long to write.
inline constexpr size_t kRingBytes = size_t{1} << 20U;
inline constexpr size_t kMacBytes = 32;

/// Counters only grow; their difference is what the ring holds. Both ends check it, because the
/// other end is another process.
struct Ring {
  alignas(64) std::atomic<uint64_t> written{0};
  alignas(64) std::atomic<uint64_t> read{0};
  alignas(64) std::byte bytes[kRingBytes];
};

/// One end's words.
struct Side {
  alignas(64) std::atomic<uint32_t> sleeping{0};  ///< ring my waker when you move something
  std::atomic<uint32_t> closed{0};                ///< nothing more comes from me
  WakerAddress waker;                             ///< written before the channel starts
};

/// sides[0] and rings[0] (what it writes) are the creator's, the lower rank's.
struct Segment {
  /// 0 until the other rank has attached and has written `mac`, its proof of the job's secret.
  alignas(64) std::atomic<uint32_t> accepted{0};
  uint8_t mac[kMacBytes];
  Side sides[2];
  Ring rings[2];
};
static_assert(std::atomic<uint64_t>::is_always_lock_free);

/// A window begins on a page behind the segment, and ends with the memory.
inline constexpr size_t kWindowBegin = (sizeof(Segment) + 4095) / 4096 * 4096;
inline constexpr size_t kMaxWindow = size_t{1} << 30U;
constexpr size_t bytes_with(size_t window) {
  return window == 0 ? sizeof(Segment) : kWindowBegin + window;
}

}  // namespace hetccl::transport::shm
