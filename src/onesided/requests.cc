#include "onesided/requests.h"

#include <utility>

namespace hetccl::onesided {

namespace {

// Bytes that one frame asks for, so that transfers take turns.
constexpr size_t kMostOfFrame = size_t{8} << 20;
constexpr size_t kMostBytes = size_t{32} << 20;

}  // namespace

void Requests::add(Transfer& get, Frame& frame) {
  if (!get.begun) {
    get.asked.cut(pace_.bytes());
    get.arrived = get.asked;
  }
  for (size_t bytes = 0; !get.asked.at_end() && frame.pieces.size() < kMaxPieces &&
                         bytes < kMostOfFrame && bytes_ < kMostBytes && pieces_ < kMostPieces;) {
    const Piece piece = get.asked.step().piece;
    frame.pieces.push_back(piece);
    bytes += piece.bytes;
    bytes_ += piece.bytes;
    ++pieces_;
    ++get.outstanding;
    get.asked.advance();
  }
}

std::vector<Inbox::Expected> Requests::take(Transfer& get, uint32_t count, TimePoint now) {
  std::vector<Inbox::Expected> places;
  size_t bytes = 0;
  for (uint32_t i = 0; i < count; ++i) {
    const Place place = get.arrived.step().local;
    places.push_back({place, pass(get)});
    bytes += places.back().bytes;
  }
  pace_.count(std::exchange(announced_, bytes), now);
  if (bytes_ == 0) rest();
  return places;
}

void Requests::drop(Transfer& get) {
  while (get.outstanding > 0) pass(get);
  if (bytes_ == 0) rest();
}

void Requests::rest() {
  announced_ = 0;
  pace_.rest();
}

// Passes a piece that is no longer expected. Returns its bytes.
uint64_t Requests::pass(Transfer& get) {
  const uint64_t bytes = get.arrived.step().piece.bytes;
  get.arrived.advance();
  --get.outstanding;
  --pieces_;
  bytes_ -= bytes;
  return bytes;
}

}  // namespace hetccl::onesided
