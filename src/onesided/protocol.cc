#include "onesided/protocol.h"

#include <algorithm>

#include "base/little_endian.h"

namespace hetccl::onesided {

namespace {

// Kind, flags, code, way, number of pieces or of Data (4), transfer (8), bytes of the payload (4).
constexpr size_t kHeadBytes = 20;
constexpr size_t kPieceBytes = 24;
constexpr uint8_t kLast = 1, kNotifies = 2;

static_assert(kHeadBytes + kMaxPieces * kPieceBytes + kMaxNotification + kMaxInline <= kMaxFrame);

bool has_pieces(Frame::Kind kind) {
  return kind == Frame::Kind::Put || kind == Frame::Kind::Get;
}

size_t most_payload(const Frame& frame) {
  if (frame.kind == Frame::Kind::Done) return kMaxText;
  return frame.kind == Frame::Kind::Notify || frame.notifies ? kMaxNotification : 0;
}

bool is_valid(const Frame& frame) {
  const bool pieces = has_pieces(frame.kind);
  return frame.kind >= Frame::Kind::Put && frame.kind <= Frame::Kind::Cancel &&
         frame.code <= ErrorCode::Unsupported && (!frame.notifies || (pieces && frame.last)) &&
         (!frame.last || pieces || frame.kind == Frame::Kind::Data ||
          frame.kind == Frame::Kind::Done) &&
         frame.count <= kMaxPieces &&
         (frame.way == Frame::Way::OneByOne || frame.kind == Frame::Kind::Put ||
          frame.kind == Frame::Kind::Data) &&
         frame.way <= Frame::Way::Inline &&
         (frame.count == 0 || pieces || frame.kind == Frame::Kind::Data);
}

}  // namespace

Bytes encode(const Frame& frame) {
  Bytes bytes(kHeadBytes + frame.pieces.size() * kPieceBytes);
  const bool pieces = has_pieces(frame.kind);
  bytes[0] = static_cast<uint8_t>(frame.kind);
  bytes[1] = static_cast<uint8_t>((frame.last ? kLast : 0) | (frame.notifies ? kNotifies : 0));
  bytes[2] = static_cast<uint8_t>(frame.code);
  bytes[3] = static_cast<uint8_t>(frame.way);
  put_number(&bytes[4], pieces ? static_cast<uint32_t>(frame.pieces.size()) : frame.count);
  put_number(&bytes[8], frame.transfer);
  put_number(&bytes[16], static_cast<uint32_t>(frame.payload.size()));
  uint8_t* out = bytes.data() + kHeadBytes;
  for (const Piece& piece : frame.pieces) {
    put_number(out, piece.region);
    put_number(out + 8, piece.offset);
    put_number(out + 16, piece.bytes);
    out += kPieceBytes;
  }
  bytes.insert(bytes.end(), frame.payload.begin(), frame.payload.end());
  bytes.insert(bytes.end(), frame.data.begin(), frame.data.end());
  return bytes;
}

std::optional<Frame> decode(std::span<const uint8_t> bytes) {
  if (bytes.size() < kHeadBytes || bytes[1] > (kLast | kNotifies)) return {};
  Frame frame;
  frame.kind = static_cast<Frame::Kind>(bytes[0]);
  frame.last = (bytes[1] & kLast) != 0;
  frame.notifies = (bytes[1] & kNotifies) != 0;
  frame.code = static_cast<ErrorCode>(bytes[2]);
  frame.way = static_cast<Frame::Way>(bytes[3]);
  frame.count = get_number<uint32_t>(&bytes[4]);
  frame.transfer = get_number<uint64_t>(&bytes[8]);
  const size_t payload = get_number<uint32_t>(&bytes[16]);
  if (!is_valid(frame) || payload > most_payload(frame)) return {};
  const size_t n = has_pieces(frame.kind) ? frame.count : 0;
  if (bytes.size() < kHeadBytes + n * kPieceBytes + payload) return {};
  const size_t data = bytes.size() - (kHeadBytes + n * kPieceBytes + payload);
  if (data > (frame.way == Frame::Way::Inline ? kMaxInline : 0)) return {};
  const uint8_t* in = bytes.data() + kHeadBytes;
  if (n > 0) frame.count = 0;
  frame.pieces.reserve(n);
  for (size_t i = 0; i < n; ++i, in += kPieceBytes) {
    const Piece piece{get_number<uint64_t>(in), get_number<uint64_t>(in + 8),
                      get_number<uint64_t>(in + 16)};
    if (piece.bytes == 0 || piece.bytes > kMaxPiece) return {};
    frame.pieces.push_back(piece);
  }
  frame.payload.assign(in, in + payload);
  frame.data.assign(in + payload, in + payload + data);
  return frame;
}

}  // namespace hetccl::onesided
