// The rings of a job as the verifier sees them: one for each lane and direction, each used by the
// rules of both of its ends.
#pragma once

#include <string>
#include <vector>

#include "lower/ring.h"
#include "verify/memory.h"

namespace hetccl::verify {

/// A message of a slice of a call, by its number on the sender's side.
struct RingMessage {
  uint32_t slice = 0;  ///< of all calls
  uint16_t message = 0;
  bool operator==(const RingMessage&) const = default;
};

/// One direction of one window. A returned text names the broken rule; null means none.
class RingCheck {
 public:
  explicit RingCheck(size_t bytes) : bytes_(bytes), ring_(bytes) {}
  [[nodiscard]] size_t bytes() const { return bytes_; }

  /// The writer takes the next place; it may go on once `credit` reaches what this returns.
  uint32_t reserve(RingMessage message, size_t bytes, Use use);
  [[nodiscard]] uint32_t credit() const { return acknowledged_; }
  const char* write(RingMessage message, const Clock& clock, Use use);
  /// The header leaves.
  const char* send(RingMessage message, const Clock& clock);
  /// The header has arrived: known to whoever knows `use`.
  const char* receive(RingMessage message, Use use);
  /// The reader finds the next place.
  void locate(RingMessage message) { located_.push_back(message); }
  const char* read(RingMessage message, const Clock& clock, Use use);
  const char* acknowledge(RingMessage message, const Clock& clock);
  /// What a message consists of; it has a place.
  [[nodiscard]] std::vector<Value>& values(RingMessage message) { return find(message)->values; }
  /// After all calls.
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
