// A put or get of many blocks, and the list of blocks, which is prepared once and used often.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "device/device.h"
#include "onesided/protocol.h"
#include "onesided/region.h"
#include "onesided/staging.h"

namespace hetccl::onesided {

/// `bytes` of a region of this endpoint, and of one of the peer's.
struct Block {
  uint64_t local_region = 0, local_offset = 0;
  uint64_t remote_region = 0, remote_offset = 0;
  uint64_t bytes = 0;
};

/// Blocks whose local parts are checked; blocks that are adjacent at both ends are merged.
/// Immutable.
class BlockList {
 public:
  struct Part {
    Place local;
    uint64_t region = 0, offset = 0;  // in the peer's memory
    uint64_t bytes = 0;
  };
  /// InvalidArgument names the first block that lies in no region.
  static Result<std::shared_ptr<const BlockList>> make(const Regions& regions,
                                                       std::span<const Block> blocks);
  [[nodiscard]] const std::vector<Part>& parts() const { return parts_; }
  [[nodiscard]] uint64_t bytes() const { return bytes_; }
  /// The local regions, each once.
  [[nodiscard]] const std::vector<uint64_t>& regions() const { return regions_; }

 private:
  std::vector<Part> parts_;
  std::vector<uint64_t> regions_;
  uint64_t bytes_ = 0;
};

/// Walks a list piece by piece.
class Walk {
 public:
  struct Step {
    Place local;
    Piece piece;
  };
  explicit Walk(const BlockList& list) : list_(&list) {}
  /// Cuts what is left into pieces of at most `most` bytes, and of kMaxPiece.
  void cut(uint64_t most) { most_ = std::min(most, kMaxPiece); }
  [[nodiscard]] bool at_end() const { return part_ == list_->parts().size(); }
  /// The current piece; `advance` passes it.
  [[nodiscard]] Step step() const;
  void advance();

 private:
  const BlockList* list_;
  uint64_t most_ = kMaxPiece;
  size_t part_ = 0;
  uint64_t offset_ = 0;
};

/// One put or get. State and status are thread-safe; all else belongs to its link.
class Transfer {
 public:
  using Hook = std::function<void(const Status&)>;
  struct Options {
    std::optional<Bytes> notification{};  ///< delivered to the peer once all data has moved
    TimePoint deadline = TimePoint::max();
    Gates::Gate gate{};  ///< the transfer begins once it is open
  };
  Transfer(bool puts, std::shared_ptr<const BlockList> blocks, Options given)
      : is_put(puts),
        list(std::move(blocks)),
        options(std::move(given)),
        asked(*list),
        arrived(*list) {}

  /// Whether it is over: none of its bytes moves any more.
  [[nodiscard]] bool done() const { return done_.load(std::memory_order_acquire); }
  /// Valid once it is done.
  [[nodiscard]] const Status& status() const { return status_; }
  /// Calls `hook` once the transfer is done, on the thread that completes it. The hook must be
  /// brief and call nothing here.
  void when_done(Hook hook);
  /// Completes the transfer, once, and releases its regions.
  void finish(Status status);

  const bool is_put;
  const std::shared_ptr<const BlockList> list;
  const Options options;

  uint64_t id = 0;
  std::vector<Use> uses;     // keep this endpoint's regions
  Walk asked;                // how far blocks were put, or requested
  Walk arrived;              // of a get: position of what has arrived
  uint64_t outstanding = 0;  // pieces that a get has requested and that have not arrived
  bool begun = false;        // a frame was sent
  bool all_asked = false;    // the last frame was sent
  bool ending = false;       // a Cancel was sent
  bool left = false;         // the last frame, or the Cancel, has left, and everything before it
  bool answered = false;     // the peer's answer has come; the transfer ends once `left` is set,
                             // too
  TimePoint ended_at{};
  Status reason;  // why it was cancelled

 private:
  std::mutex mutex_;  // guards the hook
  Hook hook_;
  Status status_;
  std::atomic<bool> done_{false};
};

}  // namespace hetccl::onesided
