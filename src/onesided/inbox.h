// Messages on their way into a link: a frame, then the pieces that it announces, each straight to
// where it belongs or, for a device, to pinned memory first.
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

/// By the engine's driver, who holds the link's lock.
class Inbox {
 public:
  struct Expected {
    Place to;  ///< null: nobody wants it, it is dropped
    size_t bytes = 0;
  };
  /// Takes a frame.
  struct Landing {
    std::vector<Expected> pieces;
    Frame::Way way{};
    std::vector<Use> uses;         ///< of what they lie in, until they have landed
    std::function<void()> landed;  ///< called once all pieces are where they belong
  };
  using OnFrame = std::function<Result<Landing>(const Frame&)>;

  struct Options {
    uint64_t communicator = 0;
    bool reaches_device = false;      ///< the channel does, where memory is registered
    exec::Window* window = nullptr;   ///< which the peer shares, too; or null
    Stager* stager = nullptr;         ///< copies what the channel does not reach
    std::shared_ptr<ChunkPool> pool;  ///< for that
  };
  Inbox(transport::Channel& channel, Options options)
      : channel_(channel), options_(std::move(options)), staging_(options_.pool) {}

  /// Receives what has come. `reads`: new frames, too. RemoteError where the peer sends nonsense,
  /// and what `on_frame` returns.
  Status progress(bool reads, const OnFrame& on_frame, bool* moved);
  /// Calls `done` once all that has arrived so far is where it belongs.
  void when_landed(std::function<void()> done) {
    landings_.push_back({last_ticket_, std::move(done), {}});
  }

  /// How many frames have pieces on their way to where they belong.
  [[nodiscard]] size_t landing() const { return landings_.size(); }
  /// Whether it may still write to that memory.
  [[nodiscard]] bool touches(const Region& region) const;
  /// Whether nothing is copied to a device any more.
  [[nodiscard]] bool copied() const { return reached(last_ticket_); }
  /// Forgets all: the channel is closed, and nothing is copied any more.
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
    size_t first = 0, n = 0;  ///< pieces
    size_t bytes = 0;
    std::byte* staged = nullptr;  ///< it comes there first
    ChunkPool::Chunk chunk{};     ///< which that is in
  };
  struct Waiting {
    uint64_t ticket = 0;
    std::function<void()> done;
    std::vector<Use> uses;
  };
  /// A chunk, or a place of the window, that a piece came in: until it is copied from there.
  struct Held {
    uint64_t ticket = 0;
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
  bool stage(Posted& posted);
  void post(const Posted& posted);
  [[nodiscard]] bool reached(uint64_t ticket) const {
    return ticket == 0 || options_.stager->reached(ticket);
  }
  bool settle();
  [[nodiscard]] bool all_here() const { return channel_.recvs_completed() == n_posted_; }

  transport::Channel& channel_;
  const Options options_;
  Staging staging_;
  State state_ = State::Idle;
  Bytes frame_;
  Landing landing_;
  size_t next_ = 0;            // of the landing's pieces, to be posted
  std::deque<Posted> posted_;  // pieces
  std::unique_ptr<std::byte[]> dropped_;
  bool dropping_ = false;  // one is posted there
  std::vector<Stager::Piece> copies_;
  size_t copied_bytes_ = 0;  // of those
  std::deque<Held> held_;
  uint64_t last_ticket_ = 0;
  uint64_t n_posted_ = 0, n_taken_ = 0;
  std::deque<Waiting> landings_;
};

}  // namespace hetccl::onesided
