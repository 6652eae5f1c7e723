// Memory that the devices of two ranks of one host both reach: what one copies out of its device
// the other copies into its own, and no transport touches it. Messages still travel through the
// channel, with headers alone. Each direction is a ring in which both ends place messages alike,
// since both send and receive them in the static order.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/fifo.h"
#include "device/device.h"
#include "exec/arena.h"

namespace hetccl::exec {

/// One direction. `place` by the launching thread alone.
class WindowRing {
 public:
  static constexpr size_t kGrain = 512;  ///< messages begin at multiples of it

  /// Where a message lies.
  struct Place {
    std::byte* data = nullptr;
    uint32_t needed = 0;  ///< so many must have been read before this one may be written; 0: none
  };

  explicit WindowRing(std::span<std::byte> memory) : memory_(memory) {}
  /// What a message takes here.
  [[nodiscard]] static size_t room(size_t bytes);
  /// Whether messages that take `bytes` together may lie here, beside others.
  [[nodiscard]] bool fits(size_t bytes) const { return bytes <= memory_.size() / 2; }
  /// So many slices before its own may be unread when a message is written, of slices whose
  /// messages take `bytes` together and fit: a ring may skip as much where it begins anew.
  [[nodiscard]] size_t slices_unread(size_t bytes) const {
    return std::max<size_t>(memory_.size() / std::max(bytes, kGrain), 2) - 2;
  }
  /// The next message's place.
  Place place(size_t bytes);
  /// Messages so far.
  [[nodiscard]] uint32_t number() const { return number_.load(std::memory_order_relaxed); }

 private:
  struct Message {
    uint32_t number = 0;
    uint64_t begin = 0;
  };
  std::span<std::byte> memory_;
  uint64_t end_ = 0;  // of all messages, as if the ring had no end
  std::atomic<uint32_t> number_{0};
  uint32_t needed_ = 0;
  Fifo<Message> messages_;  // of some length, that may still be unread
};

/// Both directions, to one other rank. Made and destroyed while nothing is in flight.
class Window {
 public:
  /// `memory` is the channel's window; the `lower` of both ranks writes the first ring. It must
  /// outlive what is made.
  static Result<std::unique_ptr<Window>> open(device::Device& device, std::span<std::byte> memory,
                                              bool lower);
  ~Window();
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;

  WindowRing out, in;  ///< of the launching thread

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
  Window(device::Device& device, std::span<std::byte> memory, bool lower);
  [[nodiscard]] device::Flag* flag() const {
    return reinterpret_cast<device::Flag*>(flag_memory_.data());
  }
  [[nodiscard]] Word& word(size_t index) const;

  device::Device& device_;
  const std::span<std::byte> memory_;
  const bool lower_;
  bool pinned_ = false;
  uint32_t read_here_ = 0;
  Arena flag_memory_;
};

}  // namespace hetccl::exec
