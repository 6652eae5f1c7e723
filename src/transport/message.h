// What precedes every piece of a message on the wire or in shared memory, and how a receiver checks
// it against the receive that it meets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/status.h"
#include "transport/transport.h"

namespace hetccl::transport {

/// One piece of one message. A message of no bytes has one piece of no bytes.
struct Header {
  uint64_t number = 0;  ///< of the message in its channel and direction, from 0
  uint64_t offset = 0;  ///< of this piece in the message
  uint64_t bytes = 0;   ///< of this piece
  uint64_t total = 0;   ///< of the message
  MessageInfo info;
};
inline constexpr size_t kHeaderBytes = 96;

/// Little endian whatever the machine.
void encode(const Header& header, uint8_t out[kHeaderBytes]);
/// RemoteError where the bytes are no header, or its piece lies outside its message.
Result<Header> decode(const uint8_t in[kHeaderBytes]);
/// Ok where `header` is of the message that `posted` expects; else InvalidUsage which says what
/// `peer` called and what this rank did.
Status check(const Header& header, const Parcel& posted, int peer);

}  // namespace hetccl::transport
