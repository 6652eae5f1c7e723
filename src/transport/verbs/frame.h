// Frames, which travel through a channel's slots: a frame returns credits and says what follows it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "transport/message.h"

namespace hetccl::transport::verbs {

/// Messages that a receiver holds for receives to come: the credits of its peer.
inline constexpr uint32_t kCredits = 16;
/// Chunks of long messages that are written to a receiver at a time.
inline constexpr uint32_t kGrants = 4;
/// Frames that return credits alone. Each returns at least half of them, so the peer can have no
/// more than two that it has not seen.
inline constexpr uint32_t kReturns = 3;
/// Receives that are posted at least, so that whatever the peer may send meets one: its grants and
/// the writes that answer ours, too.
inline constexpr uint32_t kReceives = kCredits + 2 * kGrants + kReturns;
/// Frames under way. A chunk that is written takes a work request as well.
inline constexpr uint32_t kSendSlots = kCredits + kGrants + kReturns;
inline constexpr uint32_t kSends = kSendSlots + kGrants;
/// Receives first, then frames, then one into which flushes read.
inline constexpr uint32_t kFlushSlot = kReceives + kSendSlots, kSlots = kFlushSlot + 1;

inline constexpr size_t kSlotBytes = 8 << 10;
inline constexpr size_t kChunkBytes = 512 << 10;

enum class FrameKind : uint8_t {
  Whole = 1,  ///< a Header, then the message's bytes
  Long,       ///< a Header: the bytes are written once the receiver grants memory
  Grant,      ///< a Grant
  Credits,    ///< nothing
};

struct Frame {
  FrameKind kind = FrameKind::Credits;
  uint32_t credits = 0;  ///< messages that the sender of this frame has taken from its slots
};
inline constexpr size_t kFrameBytes = 8;
inline constexpr size_t kPrefixBytes = kFrameBytes + kHeaderBytes;
/// Longer messages are written to where the receiver wants them.
inline constexpr size_t kMostWhole = kSlotBytes - kPrefixBytes;

/// Memory of the receiver's to which the sender may write one chunk of a message.
struct Grant {
  uint64_t message = 0, offset = 0, bytes = 0;
  uint64_t address = 0;
  uint32_t key = 0, index = 0;  ///< the write's immediate is the index
};
inline constexpr size_t kGrantBytes = 40;

void encode(const Frame& frame, uint8_t out[kFrameBytes]);
/// RemoteError where the bytes are none.
Result<Frame> decode_frame(const uint8_t* in, size_t bytes);
void encode(const Grant& grant, uint8_t out[kGrantBytes]);
Grant decode_grant(const uint8_t in[kGrantBytes]);

}  // namespace hetccl::transport::verbs
