// Memory that the devices of two ranks of one host both reach: what one copies out of its device
// the other copies into its own, and no transport touches it. Messages still travel through the
// channel, with headers alone. Each direction is a ring in which both ends place messages alike,
// since both send and receive them in the static order.
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

/// Both directions, to one other rank. Made and destroyed while nothing is in flight.
class Window {
 public:
  /// `memory` is the channel's window; the lower (`is_lower`) of both ranks writes the first ring.
  /// It must outlive what is made.
  static Result<std::unique_ptr<Window>> open(device::Device& device, std::span<std::byte> memory,
                                              bool is_lower);
  ~Window();
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;

  /// How many of `bytes` collectives get; messages get the rest.
  [[nodiscard]] static size_t bytes_for_collectives(size_t bytes) {
    return lower::collectives_window(bytes);
  }
  /// Bytes for messages beside a window of `bytes` for collectives; see lower::message_window.
  [[nodiscard]] static size_t bytes_for_messages(size_t bytes, bool host, bool other_host) {
    return lower::message_window(bytes, host, other_host);
  }

  lower::Ring out, in;  ///< of the launching thread
  [[nodiscard]] std::byte* out_memory(size_t offset) const {
    return ring_of(lower_).data() + offset;
  }
  [[nodiscard]] std::byte* in_memory(size_t offset) const {
    return ring_of(!lower_).data() + offset;
  }
  /// Bytes of one direction.
  [[nodiscard]] size_t ring_bytes() const { return lower::Ring::bytes_of_window(memory_.size()); }

  /// Whether the next message of `out` waits for no room, if it takes `bytes`. By the launching
  /// thread.
  [[nodiscard]] bool has_room(size_t bytes) {
    const auto needed = out.needed_for(bytes);
    return !needed || read_there().reached(*needed);
  }
  /// Counts messages of `out` that the other end's device has read.
  [[nodiscard]] device::Flag& read_there() { return *flag(); }
  /// The engine's: this end's device has read one more message of `in`.
  void count_read() { ++read_here_; }
  /// The engine's: carries the counts from end to end. True when one has changed.
  bool exchange();
  /// Whether there are messages of `out` that the other end has not read, as far as is known.
  [[nodiscard]] bool unread() const {
    return flag()->word.load(std::memory_order_relaxed) != out.number();
  }
  /// Tells the other end that this one has given up.
  void abandon();
  /// Whether the other end has.
  [[nodiscard]] bool abandoned() const;
  /// Ends all waits for room: device work may write over what the other end has yet to read.
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
