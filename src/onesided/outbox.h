// Messages on their way out of a link: frames and the pieces that follow them, in the order in
// which they were added. A piece of a device waits until it has been copied to where the channel
// reaches it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

#include "onesided/protocol.h"
#include "onesided/region.h"
#include "onesided/staging.h"
#include "transport/transport.h"

namespace hetccl::onesided {

/// A channel is kept busy with so many messages in each direction.
inline constexpr size_t kMostPosted = 256;

/// The header of the message with that number in its direction: a frame of so many bytes, or a
/// piece (0), of which `beside` bytes lie in the window.
transport::MessageInfo header_of(uint64_t communicator, uint64_t number, size_t frame_bytes,
                                 size_t beside);

/// By whoever holds the link's lock; `progress` by the engine's driver.
class Outbox {
 public:
  struct Item {
    Bytes frame{};               ///< empty: a run
    std::byte* data = nullptr;   ///< of a run of pieces
    size_t bytes = 0;            ///< of that
    bool registered = false;     ///< the transport knows where it lies
    bool beside = false;         ///< it lies in the window, and does not travel
    uint64_t ticket = 0;         ///< of the stager that brings it; 0: it is there
    ChunkPool::Chunk chunk{};    ///< it lies in
    std::vector<Use> uses{};     ///< of the regions that it lies in
    std::function<void()> sent;  ///< called once it has left, and all before it; may be empty
  };

  Outbox(transport::Channel& channel, uint64_t communicator, const Stager* stager)
      : channel_(channel), communicator_(communicator), stager_(stager) {}

  void add(Item item);
  void add(const Frame& frame, std::function<void()> sent = {}) {
    add({.frame = encode(frame), .sent = std::move(sent)});
  }
  /// Posts what is there, and lets go of what has left. True when anything moved.
  bool progress();
  /// Whether it may still read that memory.
  [[nodiscard]] bool touches(const Region& region) const;
  /// Whether nothing is copied from a device any more.
  [[nodiscard]] bool copied() const { return last_ticket_ == 0 || stager_->reached(last_ticket_); }
  /// Forgets all: the channel is closed.
  void drop() {
    waiting_.clear();
    posted_.clear();
  }
  /// Bytes, and number, of the items that have not left.
  [[nodiscard]] size_t bytes() const { return bytes_; }
  [[nodiscard]] size_t size() const { return waiting_.size() + posted_.size(); }

 private:
  [[nodiscard]] bool is_there(const Item& item) const {
    return item.ticket == 0 || stager_->reached(item.ticket);
  }
  void post(Item& item);

  transport::Channel& channel_;
  const uint64_t communicator_;
  const Stager* const stager_;
  std::deque<Item> waiting_, posted_;
  size_t bytes_ = 0;
  uint64_t last_ticket_ = 0;
  uint64_t n_posted_ = 0, n_sent_ = 0;
};

}  // namespace hetccl::onesided
