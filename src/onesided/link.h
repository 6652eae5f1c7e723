// One peer of an endpoint: the transfers that either of the two has begun. The engine drives it;
// users' threads begin transfers and cancel them.
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
#include "onesided/transfer.h"
#include "progress/engine.h"
#include "transport/transport.h"

namespace hetccl::onesided {

/// Counts since the link was made.
struct LinkStatistics {
  uint64_t bytes_put = 0, bytes_got = 0;      ///< by transfers of this end
  uint64_t bytes_taken = 0, bytes_given = 0;  ///< by those of the peer: its puts, its gets
  uint64_t transfers = 0, failed = 0;         ///< of this end, over
  uint64_t under_way = 0;                     ///< of this end
  uint64_t stalls = 0;  ///< how often nothing was read because notifications were not taken
};

/// Pinned memory, and what copies between that and an endpoint's own.
struct DeviceSide {
  std::shared_ptr<ChunkPool> out, in;
  std::shared_ptr<Stager> copies_out, copies_in;
  /// Pins the chunks, unless they are.
  [[nodiscard]] Status reserve() const {
    HETCCL_TRY(out->reserve());
    return in->reserve();
  }
};

/// Thread-safe, but for what Driven says.
class Link final : public progress::Driven {
 public:
  struct Options {
    uint64_t number = 0;        ///< of the peer in this endpoint
    std::string name;           ///< of the peer, for messages: `"decode-0" (host b, pid 7)`
    uint64_t communicator = 0;  ///< of headers
    int64_t liveness_ms = 0;
    ShmSource* shm_source = nullptr;
    std::string transport;          ///< for people
    bool reaches_device = false;    ///< its channel does, where memory is registered
    std::function<void()> on_over;  ///< called once, by the engine's driver; may be empty
  };
  /// All outlive it. `engine` is told of new work.
  Link(progress::Engine& engine, Regions& regions, Mailbox& mailbox, Options options,
       std::unique_ptr<transport::Channel> channel, std::unique_ptr<exec::Window> window,
       DeviceSide device);

  /// Begins a transfer. InvalidArgument where one of its own regions is gone; InvalidUsage where
  /// kMostTransfers are under way; the cause where the link is over.
  Status start(const std::shared_ptr<Transfer>& transfer);
  /// Ends it soon, with that reason: it is done once no byte of it moves.
  void cancel(Transfer& transfer, Status reason);
  /// InvalidUsage where too many wait to leave.
  Status notify(Bytes notification);
  /// Ends the link and all its transfers, as the engine's driver finds soon (`over`). The first
  /// cause counts. Cheap, from any thread.
  void lose(const Status& why);
  /// The peer says no more: ends the link once what it has said is read.
  void depart();
  /// Whether nothing waits to leave, or a transfer is under way.
  [[nodiscard]] bool flushed() const;
  /// Whether it has ended, and nothing of it moves.
  [[nodiscard]] bool over() const { return over_.load(std::memory_order_acquire); }
  /// Why; ok while it has not.
  [[nodiscard]] Status cause() const;
  /// Whether a transfer of either end may still touch that memory.
  [[nodiscard]] bool touches(const Region& region) const;
  [[nodiscard]] LinkStatistics statistics() const;
  [[nodiscard]] const Options& options() const { return options_; }

  static constexpr size_t kMostTransfers = 4096;

  bool poll(TimePoint now) override;
  [[nodiscard]] bool active() const override { return !over(); }
  [[nodiscard]] ShmSource* shm_source() override { return options_.shm_source; }
  [[nodiscard]] bool silent() const override;

 private:
  /// Pieces that the peer gets.
  struct Served {
    struct Part {
      Use use;
      Place from;
      size_t bytes = 0;
    };
    std::deque<Part> parts;
    bool all_asked = false;
    std::optional<Bytes> notification;
    bool queued = false;  // in turns_
  };
  /// The next to send: a transfer of this end, or one of the peer's that is served.
  struct Turn {
    std::shared_ptr<Transfer> transfer;
    uint64_t served = 0;
  };

  void settle(const Status& why);
  // With mutex_ held.
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
  Result<Inbox::Landing> on_frame(const Frame& frame);
  Inbox::Landing on_put(const Frame& frame);
  Status on_get(const Frame& frame);
  Result<Inbox::Landing> on_data(const Frame& frame);
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
  bool go_on_ending(TimePoint now);
  [[nodiscard]] Status nonsense(const char* what) const;

  progress::Engine& engine_;
  Regions& regions_;
  Mailbox& mailbox_;
  const Options options_;
  const std::unique_ptr<transport::Channel> channel_;
  const std::unique_ptr<exec::Window> window_;  // null: pieces travel by the channel
  DeviceSide device_;

  mutable std::mutex mutex_;  // guards what follows
  Outbox outbox_;
  Inbox inbox_;
  Loader loader_;
  std::map<uint64_t, std::shared_ptr<Transfer>> transfers_;  // of this end, by id
  std::deque<Turn> turns_;
  uint64_t next_id_ = 1;
  size_t asked_pieces_ = 0, asked_bytes_ = 0;  // of gets, that have not come
  std::map<uint64_t, Served> served_;          // by the peer's id
  size_t served_parts_ = 0;
  std::set<uint64_t> refused_;  // transfers of the peer that failed and have not ended
  TimePoint next_check_{};
  TimePoint moved_at_{};
  bool read_ = true;      // at the last look
  bool no_room_ = false;  // for what the last turn was to send
  TimePoint ending_since_{};
  std::optional<TimePoint> failed_at_;
  Status ended_;  // why
  LinkStatistics statistics_;

  mutable std::mutex fate_mutex_;  // guards what follows
  Status lost_;
  std::atomic<bool> is_lost_{false}, has_left_{false}, over_{false};
};

}  // namespace hetccl::onesided
