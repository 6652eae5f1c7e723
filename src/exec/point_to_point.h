// Messages from one rank to another, beside the collectives: no plan has them, since ranks call
// them by no common order. Each direction between two ranks has an order of its own, that of the
// calls; and its own channels, so that a message that waits for its other end holds up nothing
// else. All messages of one call go at the same time.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/fifo.h"
#include "ccl/ccl.h"
#include "device/device.h"
#include "exec/departures.h"
#include "exec/fault.h"
#include "exec/operation.h"
#include "progress/engine.h"
#include "transport/transport.h"

namespace hetccl::exec {

/// In a receive's place of the peer: whichever rank sends first.
inline constexpr int kAnyRank = -2;

/// One end of one message.
struct Message {
  bool send = false;  ///< else receive
  int peer = -1;      ///< this rank itself: the call has the other end too; or kAnyRank
  void* data = nullptr;
  DataType type{};
  uint64_t count = 0;  ///< elements
  uint32_t tag = 0;    ///< equal at both ends
  /// Of a receive from any rank: where to write which it was, before it completes. May be null.
  int* source = nullptr;
};
/// "send of 10 float32 to rank 1".
[[nodiscard]] std::string describe(const Message& message);

/// A message that is under way.
struct PendingMessage {
  Message message;
  uint64_t number = 0;  ///< among those of its direction between these ranks
  uint32_t pieces = 1, completed = 0;
  TimePoint launched{};
  bool started = false;  ///< the user's stream has come to it
};

struct PointToPointOptions {
  device::Device* device = nullptr;
  ccl::Communicator* ccl = nullptr;  ///< of this rank's cluster; null: there is none
  uint64_t communicator = 0;         ///< what headers carry; not the collectives' number
  int rank = -1;
  const Departures* departures = nullptr;
  /// How long after a rank's departure what it has sent may still be on its way.
  Duration departure_grace{};
  /// Called where enqueueing may block, once messages can move that it may wait for. May be empty.
  std::function<void()> on_published;
  /// Called once, by whoever drives, when a channel or a deadline fails. Must not block.
  std::function<void(const Fault&)> on_fault;
};

/// `launch` by one thread at a time; `poll` by the engine; the rest thread-safe.
class PointToPoint final : public progress::Driven {
  struct Batch;

 public:
  static constexpr size_t kMaxInFlight = 1024;

  /// A call's messages, for `done`.
  class Ticket {
   public:
    Ticket() = default;

   private:
    friend class PointToPoint;
    Ticket(const Batch* batch, uint64_t use) : batch_(batch), use_(use) {}
    const Batch* batch_ = nullptr;
    uint64_t use_ = 0;
  };

  static Result<std::unique_ptr<PointToPoint>> create(PointToPointOptions options);
  ~PointToPoint() override;

  /// Prepares for messages with that rank. Before they are launched, where nobody drives
  /// (Engine::exclusively).
  Status meet(int peer);
  /// How `peer` is reached; messages wait until then. Call where nobody drives.
  void connect(int peer, transport::Channel* channel, bool crosses);

  /// A receive from any rank, which takes a device whose memory transports reach, meets those that
  /// `meet` has prepared for, and takes the first message of its tag that no earlier receive takes.
  /// Starts `messages` once `user` has come to this point, and holds `user` up until it may use
  /// their memory. Null: they start at once. Call only while not `full`.
  Result<Ticket> launch(std::span<const Message> messages, TimePoint now, TimePoint deadline,
                        device::Stream* user);
  [[nodiscard]] bool full() const { return in_flight_.load() >= kMaxInFlight; }
  [[nodiscard]] static bool done(const Ticket& ticket);
  [[nodiscard]] bool idle() const { return !active(); }

  /// What is under way. Call where nobody drives.
  [[nodiscard]] std::vector<PendingMessage> pending();

  /// Ends everything in flight, what is being launched included: no user memory is touched once
  /// `idle`. Streams are let go as by Executor::abort, which comes first. Call where nobody drives.
  void abort();
  /// Payload bytes sent to other clusters and completed.
  [[nodiscard]] uint64_t bytes_sent() const { return bytes_sent_.load(std::memory_order_relaxed); }

  bool poll(TimePoint now) override;
  [[nodiscard]] bool active() const override { return in_flight_.load() > 0; }
  [[nodiscard]] ShmSource* shm_source() override { return nullptr; }
  [[nodiscard]] bool silent() const override {
    return (options_.device->capabilities() & device::kCooperative) == 0;
  }

 private:
  // One message on its way, in pieces: of each the device copies what transports cannot reach.
  struct Transit {
    Message message;
    uint64_t number = 0;  ///< of the message in its lane
    uint32_t pieces = 1, slots = 1;
    uint32_t posted = 0, completed = 0;
    size_t piece_bytes = 0;           ///< of all but the last
    std::byte* staging = nullptr;     ///< null where transports reach the device's memory; else
    device::Flag* staged = nullptr;   ///< counts pieces: filled by the device, or arrived
    device::Flag* done = nullptr;     ///< counts pieces: on the wire, or read by the device
    device::Flag* drained = nullptr;  ///< the device has nothing more to do
    [[nodiscard]] size_t bytes() const { return message.count * size_of(message.type); }
    [[nodiscard]] size_t bytes_of(uint32_t piece) const;
    [[nodiscard]] std::byte* user_memory(uint32_t piece) const;
    [[nodiscard]] std::byte* wire_memory(uint32_t piece) const;
  };
  // One call. Reused, so that steady state allocates nothing.
  struct Batch {
    explicit Batch(device::Device& device)
        : flag_memory(device, Arena::Kind::Pinned), staging(device, Arena::Kind::Pinned) {}
    static constexpr size_t kFlags = 4;
    device::Flag& started() { return flag(0); }    ///< the user's stream has come to the call
    device::Flag& exchanged() { return flag(1); }  ///< no message is under way
    device::Flag& copied() { return flag(2); }     ///< messages to itself, without a user's stream
    device::Flag& passed() { return flag(3); }     ///< the user's stream goes on
    device::Flag& flag(size_t index) {
      return reinterpret_cast<device::Flag*>(flag_memory.data())[index];
    }
    [[nodiscard]] bool ended();
    /// Ends all waits of device work.
    void release_waits();

    std::atomic<uint64_t> use{0};       ///< grows when it has ended
    std::atomic<bool> given_up{false};  ///< enqueueing failed half-way
    std::vector<Transit> transits;
    Arena flag_memory, staging;
    TimePoint launched{}, deadline{};
    uint64_t order = 0;       ///< among all calls; the engine's
    bool streamed = false;    ///< on a stream of the user
    bool local = false;       ///< has messages to this rank itself
    uint32_t unfinished = 0;  ///< transits under way; the engine's
  };
  struct Place {
    Batch* batch = nullptr;
    size_t index = 0;
  };
  // One direction between this rank and another.
  struct Lane {
    int peer = -1;
    bool send = false;
    bool crosses = false;
    transport::Channel* channel = nullptr;   ///< null while it is being made
    uint64_t launched = 0;                   ///< messages that name the peer; by its thread
    uint64_t numbered = 0;                   ///< messages posted whole
    std::unique_ptr<device::Stream> stream;  ///< of copies to or from staging memory
    Fifo<Place> messages;                    ///< not complete; the rest by the engine alone
    size_t posting = 0;                      ///< the place in `messages` of the next to post
    uint64_t completed = 0;                  ///< of the channel's counter
    TimePoint left{};                        ///< when the peer was first seen to have left
  };

  explicit PointToPoint(PointToPointOptions options);
  static size_t place_of(int peer, bool send) {
    return 2 * static_cast<size_t>(peer) + (send ? 1 : 0);
  }
  Lane& lane_of(const Message& message) const {
    return *lanes_[place_of(message.peer, message.send)];
  }

  // point_to_point_launch.cc
  Batch& take();
  Status prepare(Batch& batch, std::span<const Message> messages);
  static Transit cut(const Message& message);
  void place_transits(Batch& batch);
  Status enqueue(Batch& batch, std::span<const Message> messages, device::Stream* user);
  Status enqueue_copies(Transit& transit, device::Stream* user);
  Status copy_local(std::span<const Message> messages, device::Stream& stream);
  Status join(Batch& batch, device::Stream& user);
  void give_up(Batch& batch, device::Stream* user);

  // any_source.cc
  static bool precedes(const Place& one, const Place& other);
  static Transit& transit_of(const Place& place) { return place.batch->transits[place.index]; }
  static bool takes(const Place& any, const transport::MessageInfo& incoming);
  /// Gives receives from any rank what has come. True when any got something.
  bool match_any();
  bool match(const Place& any);
  /// Whether `place`, which is the next to post, must wait: what comes may be for a receive from
  /// any rank that was called before it.
  [[nodiscard]] bool is_held(Lane& lane, const Place& place) const;
  bool check_senders(TimePoint now);

  // point_to_point.cc
  void admit();
  void release_streams();
  bool poll_lane(Lane& lane);
  bool post(Lane& lane);
  bool complete(Lane& lane);
  bool retire();
  void check(TimePoint now);
  bool is_gone(Lane& lane, TimePoint now) const;
  bool check_lane(Lane& lane, TimePoint now);
  bool check_deadline(Batch& batch);
  void fault(const Fault& fault);

  PointToPointOptions options_;
  bool staged_ = false;  ///< transports cannot reach device memory
  std::unique_ptr<device::Stream> local_stream_;
  std::unique_ptr<device::Event> forked_, joined_;
  std::vector<std::unique_ptr<Lane>> lanes_;  ///< from and to rank r: 2r and 2r + 1
  std::vector<Lane*> met_;                    ///< those that there are

  std::vector<std::unique_ptr<Batch>> batches_;  ///< owns them
  std::mutex mutex_;                             ///< guards the two lists
  std::vector<Batch*> free_, launched_;
  std::atomic<size_t> in_flight_{0};
  std::atomic<uint64_t> bytes_sent_{0};
  std::vector<Batch*> running_;  ///< the rest by the engine alone
  std::vector<Place> any_;       ///< receives from any rank that nothing has come for
  size_t next_any_ = 0;          ///< the place in `met_` of which the next is asked first
  uint64_t admitted_ = 0;
  TimePoint next_deadline_check_{};
  bool faulted_ = false;
  std::atomic<bool> aborted_{false};
};

}  // namespace hetccl::exec
