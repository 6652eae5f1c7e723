// The header before every piece of a message, on the wire or in shared memory, and the receiver's
// check of it against the posted receive.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/status.h"
#include "transport/transport.h"

namespace hetccl::transport {

/// Describes one piece of one message. A message of no bytes is one piece of no bytes.
struct Header {
  uint64_t number = 0;  ///< of the message in its channel and direction, from 0
  uint64_t offset = 0;  ///< of this piece in the message
  uint64_t bytes = 0;   ///< of this piece
  uint64_t total = 0;   ///< of the message
  MessageInfo info;
};
inline constexpr size_t kHeaderBytes = 96;

/// Writes little endian on every machine.
void encode(const Header& header, uint8_t out[kHeaderBytes]);
/// Returns RemoteError if the bytes are no header, or if its piece lies outside its message.
Result<Header> decode(const uint8_t in[kHeaderBytes]);
/// Returns ok if `header` belongs to the message that `posted` expects, else InvalidUsage naming
/// the call of `peer` and that of this rank.
Status check(const Header& header, const Parcel& posted, int peer);

}  // namespace hetccl::transport
