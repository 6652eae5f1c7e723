// Computes how much memory may be registered: a NIC's memory is locked, which the system limits
// (ulimit -l).
#pragma once

#include <cstddef>

#include "base/status.h"
#include "transport/verbs/device.h"
#include "transport/verbs/frame.h"

namespace hetccl::transport::verbs {

inline constexpr size_t kPageBytes = 4096;
/// Memory that a channel locks while it is open: its slots, and the device's own for its queues.
inline constexpr size_t kChannelLocks = kSlots * kSlotBytes + (32 << 10);
/// Memory that the device locks for each further queue pair of a channel.
inline constexpr size_t kQueueLocks = 16 << 10;
/// The most memory that a chunk locks, wherever it begins in its page.
inline constexpr size_t kChunkLocks = kChunkBytes + 2 * kPageBytes;

/// Returns the bytes that this process may lock for `device`; SIZE_MAX: no limit. If the limit is
/// below `needed`, tries whether the process may exceed it.
size_t lockable_bytes(const Device& device, size_t needed);

/// Returns whether lasting registrations leave channels enough memory to lock, because there is no
/// limit or it is higher than jobs need.
bool locks_freely(const Device& device);

/// Returns the error that `channels` channels need `bytes` of locked memory and only `lockable` may
/// be locked. Names the limit and the remedy.
Status too_little_lockable(size_t channels, size_t bytes, size_t lockable);

}  // namespace hetccl::transport::verbs
