// The frames that the two ends of a channel exchange over the control connection.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "transport/message.h"
#include "transport/ncclnet/abi.h"

namespace hetccl::transport::ncclnet {

/// Messages longer than kMostWhole are cut into chunks of at most kMostChunk. A plug-in that sends
/// less than kLeastChunk at a time is not used.
inline constexpr size_t kLeastChunk = 4096, kMostChunk = 1 << 20;

/// Describes the receiver's listener for long messages, which the plug-in has made.
struct Hello {
  size_t chunk_bytes = 0;  ///< the most that it can receive at a time
  /// The sender returns it over the plug-in's connection, to prove that it is the peer.
  std::array<uint8_t, 32> token{};
  /// The plug-in's handle of the listener. Aligned, because plug-ins cast it to their own struct.
  alignas(16) std::array<uint8_t, abi::kHandleBytes> handle{};
};
inline constexpr size_t kHelloBytes = 8 + 32 + abi::kHandleBytes;

/// Number of messages that a receiver buffers before their receives are posted: its peer's credits.
inline constexpr uint32_t kCredits = 16;
/// A message in host memory up to this length travels over the control connection, after its
/// header.
inline constexpr size_t kMostWhole = 8 << 10;

enum class FrameKind : uint8_t {
  Whole = 1,  ///< a Header, then the message's bytes
  Long,       ///< a Header; the plug-in moves the bytes once they are granted. `value`: the most
              ///< that the sender can send at a time
  Listen,     ///< a Hello, before the first Grant
  Grant,      ///< `value`: number of the message whose receive is posted
  Credits,    ///< only returns credits
  Goodbye,    ///< the sender of this frame closes. `value`: chunks that it has sent
};

struct Frame {
  FrameKind kind = FrameKind::Credits;
  uint32_t credits = 0;  ///< number of messages that the sender of this frame has taken from its
                         ///< buffer
  uint64_t value = 0;
};
inline constexpr size_t kFrameBytes = 13;

void encode(const Hello& hello, uint8_t out[kHelloBytes]);
/// Returns RemoteError if the bytes are no hello.
Result<Hello> decode_hello(const uint8_t in[kHelloBytes]);
void encode(const Frame& frame, uint8_t out[kFrameBytes]);
/// Returns RemoteError if the bytes are no frame.
Result<Frame> decode_frame(const uint8_t in[kFrameBytes]);
/// Returns the header that follows a Whole or Long frame, or RemoteError if the bytes are no header
/// or do not fit the frame's kind.
Result<Header> decode_header(const Frame& frame, const uint8_t in[kHeaderBytes]);

}  // namespace hetccl::transport::ncclnet
