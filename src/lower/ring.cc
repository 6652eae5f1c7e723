#include "lower/ring.h"

namespace hetccl::lower {

size_t Ring::bytes_of_window(size_t window) {
  return window < kHead ? 0 : (window - kHead) / 2 / kGrain * kGrain;
}

size_t Ring::room(size_t bytes) {
  return (bytes + kGrain - 1) / kGrain * kGrain;
}

Ring::Place Ring::place(size_t bytes) {
  const uint64_t length = room(bytes);
  uint64_t begin = end_;
  // A message lies in one piece.
  if (begin % bytes_ + length > bytes_) begin += bytes_ - begin % bytes_;
  end_ = begin + length;
  while (!messages_.empty() && messages_.front().begin + bytes_ < end_) {
    needed_ = messages_.front().number;
    messages_.pop();
  }
  const uint32_t number = number_.load(std::memory_order_relaxed) + 1;
  number_.store(number, std::memory_order_relaxed);
  if (length > 0) messages_.push({number, begin});
  return {static_cast<size_t>(begin % bytes_), needed_};
}

}  // namespace hetccl::lower
