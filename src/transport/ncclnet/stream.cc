#include "transport/ncclnet/stream.h"

namespace hetccl::transport::ncclnet {

void Stream::put(const void* data, size_t bytes) {
  if (!has_unwritten()) {
    out_.clear();
    out_begin_ = 0;
  }
  const auto* from = static_cast<const uint8_t*>(data);
  out_.insert(out_.end(), from, from + bytes);
  put_bytes_ += bytes;
}

void Stream::write() {
  while (has_unwritten() && !broken_ && wire_.valid()) {
    const iovec part{out_.data() + out_begin_, out_.size() - out_begin_};
    size_t written = 0;
    const net::Io result = wire_.write({&part, 1}, &written);
    out_begin_ += written;
    if (result == net::Io::Blocked) return;
    broken_ = result != net::Io::Moved;
  }
}

bool Stream::read() {
  in_.erase(in_.begin(), in_.begin() + static_cast<std::ptrdiff_t>(in_begin_));
  in_begin_ = 0;
  const size_t before = in_.size();
  if (ended_ || before == kMostIn) return false;
  in_.resize(kMostIn);
  const iovec part{in_.data() + before, kMostIn - before};
  size_t got = 0;
  const net::Io result = wire_.read({&part, 1}, &got);
  in_.resize(before + (result == net::Io::Moved ? got : 0));
  ended_ = result == net::Io::Closed || result == net::Io::Failed;
  return result == net::Io::Moved;
}

}  // namespace hetccl::transport::ncclnet
