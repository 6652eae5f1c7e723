#include "transport/ncclnet/frame.h"

#include <algorithm>
#include <cinttypes>

#include "base/little_endian.h"

namespace hetccl::transport::ncclnet {
namespace {

bool is_chunk(uint64_t bytes) {
  return bytes >= kLeastChunk && bytes <= kMostChunk;
}

}  // namespace

void encode(const Hello& hello, uint8_t out[kHelloBytes]) {
  put_number(out, static_cast<uint64_t>(hello.chunk_bytes));
  std::copy(hello.token.begin(), hello.token.end(), out + 8);
  std::copy(hello.handle.begin(), hello.handle.end(), out + 40);
}

Result<Hello> decode_hello(const uint8_t in[kHelloBytes]) {
  Hello hello;
  hello.chunk_bytes = get_number<uint64_t>(in);
  std::copy_n(in + 8, hello.token.size(), hello.token.begin());
  std::copy_n(in + 40, hello.handle.size(), hello.handle.begin());
  if (!is_chunk(hello.chunk_bytes))
    return error(ErrorCode::RemoteError, "it receives chunks of %zu bytes", hello.chunk_bytes);
  return hello;
}

void encode(const Frame& frame, uint8_t out[kFrameBytes]) {
  put_number(out, static_cast<uint8_t>(frame.kind));
  put_number(out + 1, frame.credits);
  put_number(out + 5, frame.value);
}

Result<Frame> decode_frame(const uint8_t in[kFrameBytes]) {
  const Frame frame{static_cast<FrameKind>(in[0]), get_number<uint32_t>(in + 1),
                    get_number<uint64_t>(in + 5)};
  if (in[0] < 1 || in[0] > static_cast<uint8_t>(FrameKind::Goodbye) || frame.credits > kCredits)
    return error(ErrorCode::RemoteError, "what arrived is no frame of this version of hetccl");
  return frame;
}

Result<Header> decode_header(const Frame& frame, const uint8_t in[kHeaderBytes]) {
  HETCCL_ASSIGN(const Header header, transport::decode(in));
  const bool whole = frame.kind == FrameKind::Whole;
  const bool fits = whole ? header.total <= kMostWhole : header.total > 0;
  if (header.offset != 0 || header.bytes != header.total || !fits)
    return error(ErrorCode::RemoteError, "its messages do not fit their headers");
  if (!whole && !is_chunk(frame.value))
    return error(ErrorCode::RemoteError, "it sends chunks of %" PRIu64 " bytes", frame.value);
  return header;
}

}  // namespace hetccl::transport::ncclnet
