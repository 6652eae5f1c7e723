// Messages on their way into a link: a frame, then the pieces that it announces, each straight to
// where it belongs or, for a device, to pinned memory first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "onesided/protocol.h"
#include "onesided/region.h"
#include "onesided/staging.h"
#include "transport/transport.h"

namespace hetccl::onesided {

/// By the engine's driver, who holds the link's lock.
class Inbox {
 public:
  struct Expected {
    std::byte* data = nullptr;  ///< null: nobody wants it, it is dropped
    size_t bytes = 0;
    bool on_device = false;
  };
  /// Takes a frame.
  struct Landing {
    std::vector<Expected> pieces;
    std::vector<Use> uses;                 ///< of what they lie in, until they have landed
    std::shared_ptr<device::Event> after;  ///< what devices' pieces wait for
    std::function<void()> landed;          ///< called once all pieces are where they belong
  };
  using OnFrame = std::function<Result<Landing>(const Frame&)>;

  Inbox(transport::Channel& channel, uint64_t communicator, Stager* stager,
        std::shared_ptr<ChunkPool> pool)
      : channel_(channel), communicator_(communicator), stager_(stager), staging_(pool) {}

  /// Receives what has come. `reads`: new frames, too. RemoteError where the peer sends nonsense,
  /// and what `on_frame` returns.
  Status progress(bool reads, const OnFrame& on_frame, bool* moved);
  /// Calls `done` once all that has arrived so far is where it belongs.
  void when_landed(std::function<void()> done) {
    landings_.push_back({last_ticket_, std::move(done), {}});
  }

  /// Whether it may still write to that memory.
  [[nodiscard]] bool touches(const Region& region) const;
  /// Whether nothing is copied to a device any more.
  [[nodiscard]] bool copied() const { return last_ticket_ == 0 || stager_->reached(last_ticket_); }
  /// Forgets all: the channel is closed, and nothing is copied any more.
  void drop() {
    landing_ = {};
    landings_.clear();
    posted_.clear();
    chunks_.clear();
    copies_.clear();
  }

 private:
  enum class State { Idle, Frame, Pieces };
  struct Posted {
    size_t index = 0;
    Staging::Place place{};
  };
  struct Waiting {
    uint32_t ticket = 0;
    std::function<void()> done;
    std::vector<Use> uses;
  };
  Status begin_frame(bool* moved);
  Status end_frame(const OnFrame& on_frame);
  Status post_pieces(bool* moved);
  void take_pieces(bool* moved);
  void end_pieces();
  void post(void* data, size_t bytes, size_t frame_bytes);
  bool settle();
  [[nodiscard]] bool all_here() const { return channel_.recvs_completed() == n_posted_; }

  transport::Channel& channel_;
  const uint64_t communicator_;
  Stager* const stager_;
  Staging staging_;
  State state_ = State::Idle;
  Bytes frame_;
  Landing landing_;
  size_t next_ = 0;            // of the landing's pieces, to be posted
  std::deque<Posted> posted_;  // pieces
  std::unique_ptr<std::byte[]> dropped_;
  bool dropping_ = false;  // one is posted there
  std::vector<Stager::Copy> copies_;
  std::deque<std::pair<uint32_t, ChunkPool::Chunk>> chunks_;  // until their ticket is reached
  uint32_t last_ticket_ = 0;
  uint64_t n_posted_ = 0, n_taken_ = 0;
  std::deque<Waiting> landings_;
};

}  // namespace hetccl::onesided
