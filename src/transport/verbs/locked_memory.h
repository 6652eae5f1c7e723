// Memory that a NIC reaches is locked, which the system limits (ulimit -l).
#pragma once

#include <cstddef>

#include "base/status.h"
#include "transport/verbs/device.h"
#include "transport/verbs/frame.h"

namespace hetccl::transport::verbs {

inline constexpr size_t kPageBytes = 4096;
/// Memory that a channel locks while it is open: its slots, and what a device keeps of its queues.
inline constexpr size_t kChannelLocks = kSlots * kSlotBytes + (32 << 10);
/// Memory that a device keeps of each further queue pair of a channel.
inline constexpr size_t kQueueLocks = 16 << 10;
/// Memory that one chunk under way locks, wherever it begins.
inline constexpr size_t kChunkLocks = kChunkBytes + 2 * kPageBytes;

/// Bytes that this process may lock for `device`; SIZE_MAX: any number. A limit of at least
/// `needed` bytes is not put to the test.
size_t lockable_bytes(const Device& device, size_t needed);

/// Whether memory that stays registered takes none from channels: the limit is none, or beyond what
/// jobs register.
bool locks_freely(const Device& device);

/// The error of `channels` channels that need `bytes` where `lockable` may be locked: names the
/// limit and the remedy.
Status too_little_lockable(size_t channels, size_t bytes, size_t lockable);

}  // namespace hetccl::transport::verbs
