// Sends a link's messages: frames, each followed by its pieces, in the order in which they were
// added. A piece in device memory that the channel does not reach waits until it has been copied to
// pinned memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

#include "onesided/pace.h"
#include "onesided/protocol.h"
#include "onesided/region.h"
#include "onesided/staging.h"
#include "transport/transport.h"

namespace hetccl::onesided {

/// Messages that are posted at a time in each direction, to keep the channel busy.
inline constexpr size_t kMostPosted = 256;

/// Header of message `number` in its direction: a frame of `frame_bytes`, or a piece (0) with
/// `beside` bytes in the window.
transport::MessageInfo header_of(uint64_t communicator, uint64_t number, size_t frame_bytes,
                                 size_t beside);

/// Used under the link's lock; only the engine's driver calls `progress`.
class Outbox {
 public:
  struct Item {
    Bytes frame{};               ///< empty: a run of pieces
    std::byte* data = nullptr;   ///< the run
    std::vector<iovec> list{};   ///< the run, if it is not contiguous
    size_t bytes = 0;            ///< of the run
    bool registered = false;     ///< the run's memory is registered with the transport
    bool beside = false;         ///< the run is in the window and does not travel
    Stager::Ticket ticket{};     ///< of its copy; default if no copy is needed
    ChunkPool::Chunk chunk{};    ///< keeps the run's memory
    std::vector<Use> uses{};     ///< keep the regions that the run lies in
    std::function<void()> sent;  ///< called once this item and all before it have left; may be
                                 ///< empty
  };

  Outbox(transport::Channel& channel, uint64_t communicator, const Stager* stager)
      : channel_(channel), communicator_(communicator), stager_(stager) {}

  void add(Item item);
  void add(const Frame& frame, std::function<void()> sent = {}) {
    add({.frame = encode(frame), .sent = std::move(sent)});
  }
  /// Posts messages that are ready and frees those that have left. Returns whether anything moved.
  bool progress(TimePoint now);
  /// Returns whether it may still read that memory.
  [[nodiscard]] bool touches(const Region& region) const;
  /// Returns whether no copy from a device is pending.
  [[nodiscard]] bool copied() const { return reached(stager_, last_ticket_); }
  /// Drops everything. The channel must be closed.
  void drop() {
    waiting_.clear();
    posted_.clear();
  }
  /// The speed at which items leave.
  [[nodiscard]] const Pace& pace() const { return pace_; }
  /// Bytes and number of the items that have not left.
  [[nodiscard]] size_t bytes() const { return bytes_; }
  [[nodiscard]] size_t size() const { return waiting_.size() + posted_.size(); }

 private:
  void post(Item& item);

  transport::Channel& channel_;
  const uint64_t communicator_;
  const Stager* const stager_;
  std::deque<Item> waiting_, posted_;
  size_t bytes_ = 0;
  Pace pace_;
  Stager::Ticket last_ticket_;
  uint64_t n_posted_ = 0, n_sent_ = 0;
};

}  // namespace hetccl::onesided
