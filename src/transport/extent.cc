#include "transport/extent.h"

#include <algorithm>

namespace hetccl::transport {

Extent::Extent(const Parcel& message, size_t offset, size_t bytes)
    : left_(bytes), next_(message.list.data()) {
  if (bytes == 0) return;
  if (message.list.empty()) {
    at_ = static_cast<std::byte*>(message.data) + offset;
    here_ = bytes;
    return;
  }
  for (; offset >= next_->iov_len; ++next_) offset -= next_->iov_len;
  at_ = static_cast<std::byte*>(next_->iov_base) + offset;
  here_ = std::min(next_->iov_len - offset, left_);
  ++next_;
}

void Extent::enter_next() {
  while (next_->iov_len == 0) ++next_;
  at_ = static_cast<std::byte*>(next_->iov_base);
  here_ = std::min(next_->iov_len, left_);
  ++next_;
}

size_t Extent::describe(std::span<iovec> parts, size_t most, size_t* bytes) const {
  Extent walk = *this;
  size_t n = 0;
  *bytes = 0;
  while (n < parts.size() && walk.left_ > 0 && *bytes < most) {
    const size_t taken = std::min(walk.here_, most - *bytes);
    parts[n++] = {walk.at_, taken};
    *bytes += taken;
    walk.advance(taken);
  }
  return n;
}

void Extent::advance(size_t bytes) {
  while (bytes > 0) {
    const size_t taken = std::min(bytes, here_);
    at_ += taken;
    here_ -= taken;
    left_ -= taken;
    bytes -= taken;
    if (here_ == 0 && left_ > 0) enter_next();
  }
}

}  // namespace hetccl::transport
