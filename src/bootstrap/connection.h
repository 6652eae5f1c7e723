// One authenticated connection of the control plane, cut into frames. Lives on the control thread.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "bootstrap/frame.h"
#include "bootstrap/loop.h"
#include "bootstrap/silence.h"
#include "net/wire.h"

namespace hetccl::bootstrap {

/// What the notes queued on one connection may hold, in bytes, the queue's own entries included.
inline constexpr size_t kMaxQueuedNotes = size_t{1} << 20;

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  /// Whom the connection tells what happens. May close the connection from within.
  class Owner {
   public:
    virtual ~Owner() = default;
    virtual void on_frame(const Header& header, std::span<const uint8_t> payload) = 0;
    /// The peer closed, reset or broke the protocol; the connection is closed already.
    virtual void on_closed(const std::string& why) = 0;
  };
  /// A piece of bytes that several connections send without a copy each.
  struct SharedBytes {
    std::shared_ptr<const Bytes> bytes;
    size_t begin = 0, end = 0;
  };

  /// The loop keeps the connection alive until it is closed.
  static Result<std::shared_ptr<Connection>> open(Loop& loop, net::Wire wire, Owner* owner,
                                                  size_t max_payload);

  /// From now on frames go to `owner`, and may be as long as `max_payload`.
  void hand_over(Owner* owner, size_t max_payload);
  /// Queues a frame and writes what the socket takes. What a user of this class queues is bounded
  /// by the protocol: one answer to one request. Notes answer nothing: `send_note` bounds them.
  void send(Bytes frame);
  void send(Bytes frame_head, SharedBytes rest);
  /// The same for a frame that may be lost: drops it, and returns false, when the notes that wait
  /// would hold more than kMaxQueuedNotes bytes with it.
  bool send_note(std::shared_ptr<const Bytes> frame);
  /// Says no more after what is queued: flushes, half-closes, and closes when the peer does or
  /// after a second. The owner hears nothing more.
  void finish();
  /// Closes at once. The owner hears nothing more.
  void close();
  /// The same if `owner` still is the owner: before it goes.
  void abandon(const Owner* owner);
  /// Called every `period`: true when the peer has been silent for `limit`, after a last look at
  /// the socket (which may close it and tell the owner).
  bool is_silent(Duration period, Duration limit);

  /// By the last `is_silent`.
  [[nodiscard]] Duration silence() const { return silence_.length(); }
  [[nodiscard]] TimePoint last_sent() const { return last_sent_; }
  [[nodiscard]] bool is_open() const { return wire_.valid(); }

 private:
  struct Outgoing {
    Bytes own;
    SharedBytes shared;
    size_t done = 0;
    size_t note_bytes = 0;  // that it counts in queued_notes_
    [[nodiscard]] std::span<const uint8_t> rest() const;
  };

  Connection(Loop& loop, net::Wire wire, Owner* owner, size_t max_payload);
  void on_ready(uint32_t events);
  void read();
  void parse();
  void flush();
  void clear_outgoing();
  void update_events();
  void broken(const std::string& why);

  Loop& loop_;
  net::Wire wire_;
  Owner* owner_;
  size_t max_payload_;
  uint64_t watch_ = 0;
  uint32_t events_ = 0;
  TimePoint last_received_;
  TimePoint last_sent_;
  Silence silence_;
  Bytes incoming_;  // at most one frame and one read more
  std::deque<Outgoing> outgoing_;
  size_t queued_notes_ = 0;  // bytes, of those in outgoing_
  bool finishing_ = false;
  std::optional<Loop::Timer> finish_timer_;
};

}  // namespace hetccl::bootstrap
