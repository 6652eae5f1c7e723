#include "verify/ring_check.h"

namespace hetccl::verify {

uint32_t RingCheck::reserve(RingMessage message, size_t bytes, Use use) {
  entries_.push_back({.message = message, .reserved = use, .written = {}, .received = {}});
  return ring_.place(bytes).needed.value_or(0);
}

RingCheck::Entry* RingCheck::find(RingMessage message) {
  for (size_t i = entries_.size(); i > 0; --i) {
    if (entries_[i - 1].message == message) return &entries_[i - 1];
  }
  return nullptr;
}

const char* RingCheck::write(RingMessage message, const Clock& clock, Use use) {
  Entry* entry = find(message);
  if (entry == nullptr || clock.of(entry->reserved.thread) < entry->reserved.count) {
    return "writes into a ring where it has no place";
  }
  if (entry->is_written) return "writes a message twice";
  entry->written = use;
  entry->is_written = true;
  return nullptr;
}

const char* RingCheck::send(RingMessage message, const Clock& clock) {
  const Entry* entry = find(message);
  if (entry == nullptr || !entry->is_written ||
      clock.of(entry->written.thread) < entry->written.count) {
    return "announces a message that may not be written yet: nothing orders them";
  }
  return nullptr;
}

const char* RingCheck::receive(RingMessage message, Use use) {
  Entry* entry = find(message);
  if (entry == nullptr) return "receives a message that has no place";
  entry->received = use;
  entry->is_received = true;
  return nullptr;
}

const char* RingCheck::read(RingMessage message, const Clock& clock, Use use) {
  Entry* entry = find(message);
  if (entry == nullptr || !entry->is_received ||
      clock.of(entry->received.thread) < entry->received.count) {
    return "reads a message that may not have arrived: nothing orders them";
  }
  const auto place = static_cast<uint32_t>(entry - entries_.data());
  if (place < acknowledged_) return "reads a message that it has acknowledged";
  if (place >= located_.size() || !(located_[place] == message)) {
    return "reads another message's place";
  }
  entry->reads.push_back(use);
  return nullptr;
}

const char* RingCheck::acknowledge(RingMessage message, const Clock& clock) {
  if (acknowledged_ >= entries_.size() || !(entries_[acknowledged_].message == message)) {
    return "acknowledges another message";
  }
  const Entry& entry = entries_[acknowledged_];
  if (entry.reads.empty()) return "acknowledges a message that nobody has read";
  for (const Use& read : entry.reads) {
    if (clock.of(read.thread) < read.count) {
      return "acknowledges a message that is still read: nothing orders them";
    }
  }
  ++acknowledged_;
  return nullptr;
}

const char* RingCheck::check_end() const {
  if (acknowledged_ != entries_.size()) return "leaves messages unacknowledged";
  return located_.size() == entries_.size() ? nullptr : "leaves messages whose place is not found";
}

}  // namespace hetccl::verify
