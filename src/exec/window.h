// Shared memory that the devices of two ranks on one host can reach. The sender's device copies
// data out to it, the receiver's device copies the data in, and the transport carries only headers.
// Each direction is a ring. Both ends compute the same place for each message, because they send
// and receive in the same static order.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "device/device.h"
#include "exec/arena.h"
#include "lower/ring.h"
#include "lower/target.h"

namespace hetccl::exec {

/// Both directions to one peer. Created and destroyed while nothing is in flight.
class Window {
 public:
  /// `memory` is the channel's window; it must outlive the result. The lower rank (`is_lower`)
  /// writes the first ring.
  static Result<std::unique_ptr<Window>> open(device::Device& device, std::span<std::byte> memory,
                                              bool is_lower);
  ~Window();
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;

  /// Returns how many of `bytes` collectives get; messages get the rest.
  [[nodiscard]] static size_t bytes_for_collectives(size_t bytes) {
    return lower::collectives_window(bytes);
  }
  /// Returns the bytes for messages next to a window of `bytes` for collectives; see
  /// lower::message_window.
  [[nodiscard]] static size_t bytes_for_messages(size_t bytes, bool host, bool other_host) {
    return lower::message_window(bytes, host, other_host);
  }

  lower::Ring out, in;  ///< used by the launching thread
  [[nodiscard]] std::byte* out_memory(size_t offset) const {
    return ring_of(lower_).data() + offset;
  }
  [[nodiscard]] std::byte* in_memory(size_t offset) const {
    return ring_of(!lower_).data() + offset;
  }
  /// Returns the bytes of one direction.
  [[nodiscard]] size_t ring_bytes() const { return lower::Ring::bytes_of_window(memory_.size()); }

  /// Returns whether the next message of `out` finds room for `bytes` without waiting. Called by
  /// the launching thread.
  [[nodiscard]] bool has_room(size_t bytes) {
    const auto needed = out.needed_for(bytes);
    return !needed || read_there().reached(*needed);
  }
  /// Counts the messages of `out` that the other end's device has read.
  [[nodiscard]] device::Flag& read_there() { return *flag(); }
  /// Called by the engine: this end's device has read one more message of `in`.
  void count_read() { ++read_here_; }
  /// Called by the engine: exchanges the read counts with the peer. Returns true if one has
  /// changed.
  bool exchange();
  /// Returns whether, as far as known, the peer has unread messages of `out`.
  [[nodiscard]] bool unread() const {
    return flag()->word.load(std::memory_order_relaxed) != out.number();
  }
  /// Tells the peer that this end has aborted.
  void abandon();
  /// Returns whether the peer has aborted.
  [[nodiscard]] bool abandoned() const;
  /// Ends all waits for room: device work may overwrite data that the peer has not read.
  void release_waits();

 private:
  using Word = std::atomic<uint32_t>;
  Window(device::Device& device, std::span<std::byte> memory, bool is_lower);
  [[nodiscard]] device::Flag* flag() const {
    return reinterpret_cast<device::Flag*>(flag_memory_.data());
  }
  [[nodiscard]] Word& word(size_t index) const;
  [[nodiscard]] std::span<std::byte> ring_of(bool first) const {
    return memory_.subspan(lower::Ring::kHead + (first ? 0 : ring_bytes()), ring_bytes());
  }

  device::Device& device_;
  const std::span<std::byte> memory_;
  const bool lower_;
  bool pinned_ = false;
  uint32_t read_here_ = 0;
  Arena flag_memory_;
};

}  // namespace hetccl::exec
