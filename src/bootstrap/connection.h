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

/// The limit of notes queued on one connection, in bytes, with the queue's overhead.
inline constexpr size_t kMaxQueuedNotes = size_t{1} << 20;

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  /// Receives a connection's events. May close the connection from within.
  class Owner {
   public:
    virtual ~Owner() = default;
    virtual void on_frame(const Header& header, std::span<const uint8_t> payload) = 0;
    /// The peer closed, reset or broke the protocol. The connection is already closed.
    virtual void on_closed(const std::string& why) = 0;
  };
  /// Bytes that several connections send without copying them.
  struct SharedBytes {
    std::shared_ptr<const Bytes> bytes;
    size_t begin = 0, end = 0;
  };

  /// The loop keeps the connection alive until it is closed.
  static Result<std::shared_ptr<Connection>> open(Loop& loop, net::Wire wire, Owner* owner,
                                                  size_t max_payload);

  /// From now on `owner` gets the frames, which may be as long as `max_payload`.
  void hand_over(Owner* owner, size_t max_payload);
  /// Queues a frame and writes what the socket takes. The protocol bounds the queue: one answer to
  /// each request. Notes are no answers, so `send_note` bounds them.
  void send(Bytes frame);
  void send(Bytes frame_head, SharedBytes rest);
  /// Sends a frame that may be lost. Drops it and returns false if queued notes would exceed
  /// kMaxQueuedNotes bytes.
  bool send_note(std::shared_ptr<const Bytes> frame);
  /// Sends nothing after the queue: flushes, half-closes, and closes when the peer does or after a
  /// second. The owner gets no more events.
  void finish();
  /// Closes at once. The owner gets no more events.
  void close();
  /// Closes if `owner` is still the owner; call before it is destroyed.
  void abandon(const Owner* owner);
  /// Called every `period`. Returns true if the peer has been silent for `limit`, after a last look
  /// at the socket (which may close it and tell the owner).
  bool is_silent(Duration period, Duration limit);

  /// As of the last `is_silent`.
  [[nodiscard]] Duration silence() const { return silence_.length(); }
  [[nodiscard]] TimePoint last_sent() const { return last_sent_; }
  [[nodiscard]] bool is_open() const { return wire_.valid(); }

 private:
  struct Outgoing {
    Bytes own;
    SharedBytes shared;
    size_t done = 0;
    size_t note_bytes = 0;  // counted in queued_notes_
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
  Bytes incoming_;  // at most one frame and one read
  std::deque<Outgoing> outgoing_;
  size_t queued_notes_ = 0;  // bytes of notes in outgoing_
  bool finishing_ = false;
  std::optional<Loop::Timer> finish_timer_;
};

}  // namespace hetccl::bootstrap
