// A put or a get of many blocks, and the list of blocks, which is prepared once and used often.
#pragma once

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

/// Blocks whose local part is checked; neighbours at both ends are one. Immutable.
class BlockList {
 public:
  struct Part {
    Place local;
    uint64_t region = 0, offset = 0;  // the peer's
    uint64_t bytes = 0;
  };
  /// InvalidArgument naming the first block that lies in no region.
  static Result<std::shared_ptr<const BlockList>> make(const Regions& regions,
                                                       std::span<const Block> blocks);
  [[nodiscard]] const std::vector<Part>& parts() const { return parts_; }
  [[nodiscard]] uint64_t bytes() const { return bytes_; }
  /// Those of its own endpoint, each once.
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
  [[nodiscard]] bool at_end() const { return part_ == list_->parts().size(); }
  /// The next piece, which is passed by `advance`.
  [[nodiscard]] Step step() const;
  void advance();

 private:
  const BlockList* list_;
  size_t part_ = 0;
  uint64_t offset_ = 0;
};

/// One call. State and status are thread-safe; the rest is its link's.
class Transfer {
 public:
  using Hook = std::function<void(const Status&)>;
  struct Options {
    std::optional<Bytes> notification{};  ///< for the peer, once all has moved
    TimePoint deadline = TimePoint::max();
    Gates::Gate gate{};  ///< it begins once that is open
  };
  Transfer(bool puts, std::shared_ptr<const BlockList> blocks, Options given)
      : is_put(puts),
        list(std::move(blocks)),
        options(std::move(given)),
        asked(*list),
        arrived(*list) {}

  /// Over: no byte of its memory moves any more.
  [[nodiscard]] bool done() const { return done_.load(std::memory_order_acquire); }
  /// Once it is done.
  [[nodiscard]] const Status& status() const { return status_; }
  /// Calls `hook` once it is done, by the thread that finds it so: brief, it calls nothing here.
  void when_done(Hook hook);
  /// Once; releases the regions.
  void finish(Status status);

  const bool is_put;
  const std::shared_ptr<const BlockList> list;
  const Options options;

  uint64_t id = 0;
  std::vector<Use> uses;     // of this endpoint's regions
  Walk asked;                // what was put, or asked for
  Walk arrived;              // of a get
  uint64_t outstanding = 0;  // pieces of a get that were asked for and have not come
  bool begun = false;        // a frame was made
  bool all_asked = false;    // the last one was
  bool ending = false;       // a Cancel was made
  bool left = false;         // the last frame of both, and all before, has left
  bool answered = false;     // by the peer, before that
  TimePoint ended_at{};
  Status reason;  // of that

 private:
  std::mutex mutex_;  // guards the hook
  Hook hook_;
  Status status_;
  std::atomic<bool> done_{false};
};

}  // namespace hetccl::onesided
