// Receives a link's messages: a frame, then the pieces that it announces. A piece arrives directly
// at its destination if the channel reaches that memory; several of them come as one message if the
// channel takes lists. All other pieces arrive in pinned memory, from where the device copies them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "exec/window.h"
#include "onesided/protocol.h"
#include "onesided/region.h"
#include "onesided/staging.h"
#include "transport/transport.h"

namespace hetccl::onesided {

/// Used by the engine's driver, which holds the link's lock.
class Inbox {
 public:
  struct Expected {
    Place to;  ///< null: dropped, since no transfer wants it
    size_t bytes = 0;
  };
  /// Destinations of a frame's pieces.
  struct Landing {
    std::vector<Expected> pieces;
    Frame::Way way{};
    std::vector<Use> uses;         ///< of their memory, until the pieces have landed
    std::function<void()> landed;  ///< called once all pieces are in their places
  };
  /// Finds where the pieces of a put go. InvalidArgument if a region is gone, too short, or may not
  /// be written by peers.
  static Result<Landing> find_places(const Regions& regions, const Frame& frame);
  using OnFrame = std::function<Result<Landing>(const Frame&)>;

  struct Options {
    uint64_t communicator = 0;
    bool reaches_device = false;      ///< the channel reaches registered device memory
    exec::Window* window = nullptr;   ///< shared with the peer; or null
    Stager* stager = nullptr;         ///< copies to memory that the channel does not reach
    std::shared_ptr<ChunkPool> pool;  ///< buffers for those copies
  };
  Inbox(transport::Channel& channel, Options options)
      : channel_(channel), options_(std::move(options)), staging_(options_.pool) {}

  /// Receives messages that have arrived; new frames only if `reads`. RemoteError if the peer
  /// breaks the protocol; also returns errors of `on_frame`.
  Status progress(bool reads, const OnFrame& on_frame, bool* moved);
  /// Calls `done` once all that has arrived so far is in its place.
  void when_landed(std::function<void()> done) {
    landings_.push_back({last_ticket_, std::move(done), {}});
  }

  /// Number of frames whose pieces have not all landed.
  [[nodiscard]] size_t landing() const { return landings_.size(); }
  /// Whether it may still write to that memory.
  [[nodiscard]] bool touches(const Region& region) const;
  /// Whether no copy to a device is pending.
  [[nodiscard]] bool copied() const { return reached(options_.stager, last_ticket_); }
  /// Drops everything. The channel must be closed, and no copy pending.
  void drop() {
    landing_ = {};
    landings_.clear();
    posted_.clear();
    held_.clear();
    copies_.clear();
  }

 private:
  enum class State { Idle, Frame, Pieces };
  struct Posted {
    size_t first = 0, n = 0;  ///< indices of pieces
    size_t bytes = 0;
    std::byte* staged = nullptr;  ///< buffer in which it arrives; null: arrives in its place
    std::vector<iovec> list{};    ///< its places, if there are several
    bool is_here = false;         ///< came inside the frame
    ChunkPool::Chunk chunk{};     ///< the chunk of that buffer
  };
  struct Waiting {
    Stager::Ticket ticket;
    std::function<void()> done;
    std::vector<Use> uses;
  };
  /// A chunk, or a place in the window, that is in use until its data has been copied.
  struct Held {
    Stager::Ticket ticket;
    ChunkPool::Chunk chunk;
    bool in_window = false;
  };
  Status begin_frame(bool* moved);
  Status end_frame(const OnFrame& on_frame);
  void post_pieces(bool* moved);
  void take_pieces(bool* moved);
  void copy();
  void end_pieces();
  [[nodiscard]] Posted next_run() const;
  [[nodiscard]] bool by_window() const { return landing_.way == Frame::Way::Window; }
  [[nodiscard]] bool is_inline() const { return landing_.way == Frame::Way::Inline; }
  [[nodiscard]] bool arrives_in_place(const Posted& run) const;
  void unpack(Posted& run);
  [[nodiscard]] std::span<const Expected> pieces_of(const Posted& run) const {
    return std::span(landing_.pieces).subspan(run.first, run.n);
  }
  bool stage(Posted& posted);
  void post(const Posted& posted);
  bool settle();
  [[nodiscard]] bool all_here() const { return channel_.recvs_completed() == n_posted_; }

  transport::Channel& channel_;
  const Options options_;
  Staging staging_;
  State state_ = State::Idle;
  Bytes frame_;
  Landing landing_;
  Bytes inline_;               // the landing's bytes, if they came inside the frame
  size_t next_ = 0;            // next piece of the landing to post
  std::deque<Posted> posted_;  // runs of pieces
  std::unique_ptr<std::byte[]> dropped_;
  bool dropping_ = false;  // a receive into dropped_ is outstanding
  std::vector<Stager::Piece> copies_;
  size_t copied_bytes_ = 0;  // total of copies_
  std::deque<Held> held_;
  Stager::Ticket last_ticket_;
  uint64_t n_posted_ = 0, n_taken_ = 0;
  std::deque<Waiting> landings_;
};

}  // namespace hetccl::onesided
