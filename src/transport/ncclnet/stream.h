// Bytes both ways over a channel's control connection, without blocking.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "net/wire.h"

namespace hetccl::transport::ncclnet {

/// One thread at a time.
class Stream {
 public:
  explicit Stream(net::Wire wire) : wire_(std::move(wire)) {}

  [[nodiscard]] int fd() const { return wire_.fd(); }
  /// Appends to what is to be written.
  void put(const void* data, size_t bytes);
  /// Bytes put so far, and those of them that the kernel has.
  [[nodiscard]] uint64_t put_bytes() const { return put_bytes_; }
  [[nodiscard]] uint64_t written() const { return put_bytes_ - (out_.size() - out_begin_); }
  [[nodiscard]] bool has_unwritten() const { return out_begin_ < out_.size(); }
  /// Writes what the socket takes. After a failure nothing is written any more; `read` tells the
  /// end.
  void write();
  /// Fills `in` up to kMostIn bytes. False where nothing more has come.
  bool read();
  /// Nothing more will come than what `in` has.
  [[nodiscard]] bool ended() const { return ended_; }
  [[nodiscard]] std::span<const uint8_t> in() const {
    return {in_.data() + in_begin_, in_.size() - in_begin_};
  }
  void take(size_t bytes) { in_begin_ += bytes; }
  void close() { wire_.reset(); }

  static constexpr size_t kMostIn = 64 << 10;

 private:
  net::Wire wire_;
  std::vector<uint8_t> out_, in_;
  size_t out_begin_ = 0, in_begin_ = 0;
  uint64_t put_bytes_ = 0;
  bool ended_ = false, broken_ = false;
};

}  // namespace hetccl::transport::ncclnet
