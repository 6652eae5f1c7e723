#include "transport/verbs/frame.h"

#include "transport/verbs/little_endian.h"

namespace hetccl::transport::verbs {
namespace {

size_t least_bytes(FrameKind kind) {
  switch (kind) {
    case FrameKind::Whole:
    case FrameKind::Long:
      return kPrefixBytes;
    case FrameKind::Grant:
      return kFrameBytes + kGrantBytes;
    case FrameKind::Credits:
      return kFrameBytes;
  }
  return SIZE_MAX;
}

}  // namespace

void encode(const Frame& frame, uint8_t out[kFrameBytes]) {
  put(out, static_cast<uint8_t>(frame.kind), 4);
  put(out, frame.credits, 4);
}

Result<Frame> decode_frame(const uint8_t* in, size_t bytes) {
  if (bytes < kFrameBytes) return error(ErrorCode::RemoteError, "a frame of %zu bytes came", bytes);
  const auto kind = static_cast<uint32_t>(get(in, 4));
  const Frame frame{static_cast<FrameKind>(kind), static_cast<uint32_t>(get(in, 4))};
  if (kind > 4 || bytes < least_bytes(frame.kind) || frame.credits > kCredits)
    return error(ErrorCode::RemoteError, "what arrived is no frame of this version of hetccl");
  return frame;
}

void encode(const Grant& grant, uint8_t out[kGrantBytes]) {
  for (const uint64_t one : {grant.message, grant.offset, grant.bytes, grant.address})
    put(out, one, 8);
  put(out, grant.key, 4);
  put(out, grant.index, 4);
}

Grant decode_grant(const uint8_t in[kGrantBytes]) {
  Grant grant;
  for (uint64_t* one : {&grant.message, &grant.offset, &grant.bytes, &grant.address})
    *one = get(in, 8);
  grant.key = static_cast<uint32_t>(get(in, 4));
  grant.index = static_cast<uint32_t>(get(in, 4));
  return grant;
}

}  // namespace hetccl::transport::verbs
