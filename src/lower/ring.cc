#include "lower/ring.h"

namespace hetccl::lower {

size_t Ring::bytes_of_window(size_t window) {
  return window < kHead ? 0 : (window - kHead) / 2 / kGrain * kGrain;
}

size_t Ring::room(size_t bytes) {
  return (bytes + kGrain - 1) / kGrain * kGrain;
}

uint64_t Ring::begin_of(uint64_t length) const {
  const uint64_t left = bytes_ - end_ % bytes_;
  return length > left ? end_ + left : end_;
}

std::optional<uint32_t> Ring::needed_for(size_t bytes) const {
  const uint64_t end = begin_of(room(bytes)) + room(bytes);
  std::optional<uint32_t> needed = needed_;
  for (size_t i = 0; i < unread_.size() && unread_[i].begin + bytes_ < end; ++i)
    needed = unread_[i].number;
  return needed;
}

Ring::Placement Ring::place(size_t bytes) {
  const uint64_t length = room(bytes);
  const uint64_t begin = begin_of(length);
  needed_ = needed_for(bytes);
  end_ = begin + length;
  while (!unread_.empty() && unread_.front().begin + bytes_ < end_) unread_.pop();
  const uint32_t number = number_.load(std::memory_order_relaxed) + 1;
  number_.store(number, std::memory_order_relaxed);
  if (length > 0) unread_.push({number, begin});
  return {static_cast<size_t>(begin % bytes_), needed_};
}

}  // namespace hetccl::lower
