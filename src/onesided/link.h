// The link to one peer of an endpoint, with the transfers of both ends. The engine drives it;
// users' threads begin and cancel transfers.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>

#include "onesided/inbox.h"
#include "onesided/loader.h"
#include "onesided/mailbox.h"
#include "onesided/outbox.h"
#include "onesided/region.h"
#include "onesided/requests.h"
#include "onesided/transfer.h"
#include "progress/engine.h"
#include "transport/transport.h"

namespace hetccl::onesided {

/// Counts since the link was made.
struct LinkStatistics {
  uint64_t bytes_put = 0, bytes_got = 0;      ///< by this end's transfers
  uint64_t bytes_taken = 0, bytes_given = 0;  ///< by the peer's puts and gets
  uint64_t transfers = 0, failed = 0;         ///< finished transfers of this end
  uint64_t under_way = 0;                     ///< transfers of this end
  uint64_t stalls = 0;  ///< times that reading stopped because notifications were not taken
};

/// Pinned memory, and the stagers that copy between it and an endpoint's device.
struct DeviceSide {
  std::shared_ptr<ChunkPool> out, in;
  std::shared_ptr<Stager> copies_out, copies_in;
  /// Pins the chunks, unless they are pinned.
  [[nodiscard]] Status reserve() const {
    HETCCL_TRY(out->reserve());
    return in->reserve();
  }
};

/// Thread-safe, except as Driven says.
class Link final : public progress::Driven {
 public:
  struct Options {
    uint64_t number = 0;        ///< the peer's number in this endpoint
    std::string name;           ///< the peer, in messages: `"decode-0" (host b, pid 7)`
    uint64_t communicator = 0;  ///< for headers
    int64_t liveness_ms = 0;
    ShmSource* shm_source = nullptr;
    std::string transport;          ///< for messages
    bool reaches_device = false;    ///< the channel reaches registered device memory
    std::function<void()> on_over;  ///< the engine's driver calls it once; may be empty
  };
  /// The arguments passed by reference must outlive the link. `engine` is notified of new work.
  Link(progress::Engine& engine, Regions& regions, Mailbox& mailbox, Options options,
       std::unique_ptr<transport::Channel> channel, std::unique_ptr<exec::Window> window,
       DeviceSide device);

  /// Begins a transfer. InvalidArgument if one of its own regions is gone; InvalidUsage if
  /// kMostTransfers are pending; the link's cause if it has ended.
  Status start(const std::shared_ptr<Transfer>& transfer);
  /// Cancels a transfer for `reason`. The transfer is done once none of its bytes moves any more.
  void cancel(Transfer& transfer, Status reason);
  /// Sends a notification. InvalidUsage if too many messages are waiting to leave.
  Status notify(Bytes notification);
  /// Fails the link and all its transfers for that reason; later reasons are ignored. Returns at
  /// once, and the engine's driver ends the link (`over`). Any thread may call it.
  void fail(const Status& why);
  /// Ends the link in order, because the peer has left: its last messages are read first.
  void depart();
  /// Returns whether a leaving endpoint need not wait: all messages have left, or transfers are
  /// pending, which it aborts anyway.
  [[nodiscard]] bool flushed() const;
  /// Returns whether the link has ended and none of its bytes moves any more.
  [[nodiscard]] bool over() const { return over_.load(std::memory_order_acquire); }
  /// Returns why the link has ended; ok while it has not.
  [[nodiscard]] Status cause() const;
  /// Returns whether a transfer of either end may still use that memory.
  [[nodiscard]] bool touches(const Region& region) const;
  [[nodiscard]] LinkStatistics statistics() const;
  [[nodiscard]] const Options& options() const { return options_; }

  static constexpr size_t kMostTransfers = 4096;

  bool poll(TimePoint now) override;
  [[nodiscard]] bool active() const override { return !over(); }
  [[nodiscard]] ShmSource* shm_source() override { return options_.shm_source; }
  [[nodiscard]] bool silent() const override;

 private:
  /// A get of the peer, which this end serves.
  struct Served {
    struct Part {
      Use use;
      Place from;
      size_t bytes = 0;
    };
    std::deque<Part> parts;
    bool all_asked = false;
    std::optional<Bytes> notification;
    bool queued = false;  // has an entry in turns_
  };
  /// An entry of the rotation in which transfers send: a transfer of this end, or a get of the
  /// peer.
  struct Turn {
    std::shared_ptr<Transfer> transfer;
    uint64_t served = 0;
  };

  void settle(const Status& why);
  // Requires mutex_.
  bool move(TimePoint now);
  [[nodiscard]] bool copies() const;
  bool take_turns();
  bool take_turn(const Turn& turn, bool* again);
  bool put_some(const std::shared_ptr<Transfer>& transfer, bool* again);
  bool ask_some(const std::shared_ptr<Transfer>& transfer, bool* again);
  bool serve_some(uint64_t id, bool* again);
  Loader::Loaded load(const std::vector<Loader::Piece>& pieces);
  static void note_made(Transfer& transfer, Frame& frame);
  void send(Loader::Loaded loaded, const Frame& frame, std::function<void()> sent);
  Result<Inbox::Landing> on_frame(const Frame& frame, TimePoint now);
  [[nodiscard]] Result<std::deque<Served::Part>> find_parts(const Frame& frame) const;
  Inbox::Landing on_put(const Frame& frame);
  Status on_get(const Frame& frame);
  Result<Inbox::Landing> on_data(const Frame& frame, TimePoint now);
  Status on_done(const Frame& frame);
  void end(Transfer& transfer, Status reason);
  void end_answered(const std::shared_ptr<Transfer>& transfer);
  std::function<void()> when_left(const std::shared_ptr<Transfer>& transfer);
  void stop_serving(uint64_t id);
  void on_cancel(uint64_t id);
  void refuse(const Frame& frame, const Status& why);
  void answer(uint64_t id, const Status& status);
  void deliver(Bytes notification);
  void finish(const std::shared_ptr<Transfer>& transfer, Status status);
  void check_deadlines(TimePoint now);
  bool look_for_end(TimePoint now);
  void begin_end(const Status& why, TimePoint now);
  bool finish_end(TimePoint now);
  [[nodiscard]] Status nonsense(const char* what) const;

  progress::Engine& engine_;
  Regions& regions_;
  Mailbox& mailbox_;
  const Options options_;
  const std::unique_ptr<transport::Channel> channel_;
  const std::unique_ptr<exec::Window> window_;  // null: pieces travel by the channel
  DeviceSide device_;

  mutable std::mutex mutex_;  // guards the members below
  Outbox outbox_;
  Inbox inbox_;
  Loader loader_;
  std::map<uint64_t, std::shared_ptr<Transfer>> transfers_;  // of this end, by id
  std::deque<Turn> turns_;
  uint64_t next_id_ = 1;
  Requests requests_;
  std::map<uint64_t, Served> served_;  // by the peer's id
  size_t served_parts_ = 0;
  std::set<uint64_t> refused_;  // transfers of the peer that were refused and have not ended
  TimePoint next_check_{};
  TimePoint moved_at_{};
  bool read_ = true;      // whether new frames were read at the last poll
  bool no_room_ = false;  // the last turn found no buffer for its pieces
  TimePoint ending_since_{};
  std::optional<TimePoint> failed_at_;
  Status ended_;  // the cause
  LinkStatistics statistics_;

  mutable std::mutex fate_mutex_;  // guards the members below
  Status lost_;
  std::atomic<bool> is_lost_{false}, has_left_{false}, over_{false};
};

}  // namespace hetccl::onesided
