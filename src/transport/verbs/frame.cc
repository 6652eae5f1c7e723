#include "transport/verbs/frame.h"

#include "base/little_endian.h"

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
  put_number(out, static_cast<uint32_t>(frame.kind));
  put_number(out + 4, frame.credits);
}

Result<Frame> decode_frame(const uint8_t* in, size_t bytes) {
  if (bytes < kFrameBytes) return error(ErrorCode::RemoteError, "a frame of %zu bytes came", bytes);
  const auto kind = get_number<uint32_t>(in);
  const Frame frame{static_cast<FrameKind>(kind), get_number<uint32_t>(in + 4)};
  if (kind > 4 || bytes < least_bytes(frame.kind) || frame.credits > kCredits)
    return error(ErrorCode::RemoteError, "what arrived is no frame of this version of hetccl");
  return frame;
}

void encode(const Grant& grant, uint8_t out[kGrantBytes]) {
  put_number(out, grant.message);
  put_number(out + 8, grant.offset);
  put_number(out + 16, grant.bytes);
  put_number(out + 24, grant.address);
  put_number(out + 32, grant.key);
  put_number(out + 36, grant.index);
}

Grant decode_grant(const uint8_t in[kGrantBytes]) {
  return {get_number<uint64_t>(in),      get_number<uint64_t>(in + 8),
          get_number<uint64_t>(in + 16), get_number<uint64_t>(in + 24),
          get_number<uint32_t>(in + 32), get_number<uint32_t>(in + 36)};
}

}  // namespace hetccl::transport::verbs
