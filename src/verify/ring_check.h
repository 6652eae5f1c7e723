// The verifier's model of a job's rings: one per lane and direction, checked against the rules of
// both ends.
#pragma once

#include <string>
#include <vector>

#include "lower/ring.h"
#include "verify/memory.h"

namespace hetccl::verify {

/// A message in one slice of a call, with the sender's number.
struct RingMessage {
  uint32_t slice = 0;  ///< numbered over all calls
  uint16_t message = 0;
  bool operator==(const RingMessage&) const = default;
};

/// One direction of one window. Functions return the broken rule as a text, or null.
class RingCheck {
 public:
  explicit RingCheck(size_t bytes) : bytes_(bytes), ring_(bytes) {}
  [[nodiscard]] size_t bytes() const { return bytes_; }

  /// Takes the writer's next place. Returns the credit that the writer must wait for.
  uint32_t reserve(RingMessage message, size_t bytes, Use use);
  [[nodiscard]] uint32_t credit() const { return acknowledged_; }
  const char* write(RingMessage message, const Clock& clock, Use use);
  /// Records that the header leaves.
  const char* send(RingMessage message, const Clock& clock);
  /// Records that the header has arrived; to know `use` is to know that.
  const char* receive(RingMessage message, Use use);
  /// Records that the reader takes the next place.
  void locate(RingMessage message) { located_.push_back(message); }
  const char* read(RingMessage message, const Clock& clock, Use use);
  const char* acknowledge(RingMessage message, const Clock& clock);
  /// Values of a message, which must have a place.
  [[nodiscard]] std::vector<Value>& values(RingMessage message) { return find(message)->values; }
  /// Checks the ring after all calls.
  [[nodiscard]] const char* check_end() const;

 private:
  struct Entry {
    RingMessage message;
    Use reserved, written, received;
    bool is_written = false, is_received = false;
    std::vector<Use> reads{};
    std::vector<Value> values{};
  };
  Entry* find(RingMessage message);

  size_t bytes_;
  lower::Ring ring_;
  std::vector<Entry> entries_;  // in the order of their places
  std::vector<RingMessage> located_;
  uint32_t acknowledged_ = 0;
};

}  // namespace hetccl::verify
