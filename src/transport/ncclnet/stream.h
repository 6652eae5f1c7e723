// The bytes of a channel's control connection, both ways. Nothing here blocks.
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
  /// Appends bytes to the output. `write` sends them.
  void put(const void* data, size_t bytes);
  /// Return how many bytes were put so far, and how many of these the kernel has.
  [[nodiscard]] uint64_t put_bytes() const { return put_bytes_; }
  [[nodiscard]] uint64_t written() const { return put_bytes_ - (out_.size() - out_begin_); }
  [[nodiscard]] bool has_unwritten() const { return out_begin_ < out_.size(); }
  /// Writes as much as the socket takes. After a failure it writes nothing more, and `read` shows
  /// the end.
  void write();
  /// Reads until `in` has kMostIn bytes. Returns false if nothing more has arrived.
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
