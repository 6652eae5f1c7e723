// The words of a channel's ends over the control connection.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "transport/message.h"
#include "transport/ncclnet/abi.h"

namespace hetccl::transport::ncclnet {

/// Longer messages than kMostWhole are cut into chunks of at most kMostChunk. A plug-in that takes
/// less than kLeastChunk is not used.
inline constexpr size_t kLeastChunk = 4096, kMostChunk = 1 << 20;

/// A receiver's listener for long messages, by the plug-in.
struct Hello {
  size_t chunk_bytes = 0;  ///< that it can receive at a time
  /// The sender sends it back over the connection that it makes, as a proof that it is the peer.
  std::array<uint8_t, 32> token{};
  /// The plug-in's listener. Plug-ins take it for a structure of theirs.
  alignas(16) std::array<uint8_t, abi::kHandleBytes> handle{};
};
inline constexpr size_t kHelloBytes = 8 + 32 + abi::kHandleBytes;

/// Messages that a receiver holds for receives to come: the credits of its peer.
inline constexpr uint32_t kCredits = 16;
/// Messages up to this travel over the control connection, behind their header: out of the memory
/// of hosts.
inline constexpr size_t kMostWhole = 8 << 10;

enum class FrameKind : uint8_t {
  Whole = 1,  ///< a Header, then the message's bytes
  Long,       ///< a Header; the bytes go by the plug-in once they are granted. `value`: how many
              ///< of them the sender can send at a time
  Listen,     ///< a Hello, before the first Grant
  Grant,      ///< `value`: the message for which a receive is posted
  Credits,    ///< nothing
  Goodbye,    ///< `value`: chunks that the sender of this has sent; it closes
};

struct Frame {
  FrameKind kind = FrameKind::Credits;
  uint32_t credits = 0;  ///< messages that the sender of this frame has taken
  uint64_t value = 0;
};
inline constexpr size_t kFrameBytes = 13;

void encode(const Hello& hello, uint8_t out[kHelloBytes]);
/// RemoteError where the bytes are none.
Result<Hello> decode_hello(const uint8_t in[kHelloBytes]);
void encode(const Frame& frame, uint8_t out[kFrameBytes]);
/// RemoteError where the bytes are none.
Result<Frame> decode_frame(const uint8_t in[kFrameBytes]);
/// A header that follows a Whole or Long frame. RemoteError where it is none, or belongs to the
/// other kind.
Result<Header> decode_header(const Frame& frame, const uint8_t in[kHeaderBytes]);

}  // namespace hetccl::transport::ncclnet
