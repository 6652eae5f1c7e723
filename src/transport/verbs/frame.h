// Frames, which travel through a channel's slots. Each returns credits and announces what follows
// it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "transport/message.h"

namespace hetccl::transport::verbs {

/// Number of messages that a receiver buffers before their receives are posted: its peer's credits.
inline constexpr uint32_t kCredits = 16;
/// Number of chunks of long messages that a receiver grants at a time.
inline constexpr uint32_t kGrants = 4;
/// Slots for frames that only return credits. Each returns at least half of all credits, so at most
/// two can be on their way.
inline constexpr uint32_t kReturns = 3;
/// Number of posted receives that meets everything the peer may send: messages, its grants, its
/// writes to this end's grants, and returned credits.
inline constexpr uint32_t kReceives = kCredits + 2 * kGrants + kReturns;
/// Number of frames under way. A write of a chunk needs another work request, but no slot.
inline constexpr uint32_t kSendSlots = kCredits + kGrants + kReturns;
inline constexpr uint32_t kSends = kSendSlots + kGrants;
/// Slots for receives come first, then those for frames, then the one into which flushes read.
inline constexpr uint32_t kFlushSlot = kReceives + kSendSlots, kSlots = kFlushSlot + 1;

inline constexpr size_t kSlotBytes = 8 << 10;
inline constexpr size_t kChunkBytes = 512 << 10;

enum class FrameKind : uint8_t {
  Whole = 1,  ///< a Header, then the message's bytes
  Long,       ///< a Header; the bytes are written by RDMA once the receiver grants memory
  Grant,      ///< a Grant
  Credits,    ///< only returns credits
};

struct Frame {
  FrameKind kind = FrameKind::Credits;
  uint32_t credits = 0;  ///< number of slots that the sender of this frame has freed for messages
};
inline constexpr size_t kFrameBytes = 8;
inline constexpr size_t kPrefixBytes = kFrameBytes + kHeaderBytes;
/// Longer messages are written directly to the receiver's memory.
inline constexpr size_t kMostWhole = kSlotBytes - kPrefixBytes;

/// Memory of the receiver to which the sender may write one chunk of a message.
struct Grant {
  uint64_t message = 0, offset = 0, bytes = 0;
  uint64_t address = 0;
  uint32_t key = 0, index = 0;  ///< the sender writes with `index` as immediate
};
inline constexpr size_t kGrantBytes = 40;

void encode(const Frame& frame, uint8_t out[kFrameBytes]);
/// Returns RemoteError if the bytes are no frame.
Result<Frame> decode_frame(const uint8_t* in, size_t bytes);
void encode(const Grant& grant, uint8_t out[kGrantBytes]);
Grant decode_grant(const uint8_t in[kGrantBytes]);

}  // namespace hetccl::transport::verbs
