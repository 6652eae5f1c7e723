// Messages from one rank to another, beside the collectives. Each is a small plan, lowered and run
// as they are; but no order is common to all ranks. Each direction between two ranks has an order
// of its own, that of the calls; and its own channel, streams and buffers, so that a message that
// waits for its other end holds up nothing else. All messages of one call go at the same time.
// Between two ranks of a cluster its library may carry them (exec/route.h).
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "ccl/ccl.h"
#include "device/device.h"
#include "exec/departures.h"
#include "exec/fault.h"
#include "exec/in_flight.h"
#include "exec/interpreter.h"
#include "exec/pool.h"
#include "exec/route.h"
#include "exec/wire.h"
#include "progress/engine.h"
#include "topology/topology.h"
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
  uint32_t slices = 1, completed = 0;
  TimePoint launched{};
  bool started = false;  ///< the user's stream has come to it
};

struct PointToPointOptions {
  device::Device* device = nullptr;
  ccl::Communicator* ccl = nullptr;              ///< of this rank's cluster; null: there is none
  const topology::Topology* topology = nullptr;  ///< outlives it
  uint64_t communicator = 0;  ///< what headers carry; not the collectives' number
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
  struct Group;

 public:
  static constexpr size_t kMaxInFlight = 1024;

  /// A call's messages, for `done`.
  class Ticket {
   public:
    Ticket() = default;

   private:
    friend class PointToPoint;
    Ticket(const Group* group, uint64_t use) : group_(group), use_(use) {}
    const Group* group_ = nullptr;
    uint64_t use_ = 0;
  };

  static Result<std::unique_ptr<PointToPoint>> create(PointToPointOptions options);
  ~PointToPoint() override;

  struct Ends;
  /// Makes the lanes for messages with that rank. `window` is what its device shares with this one,
  /// or null; `direct`: transports read and write the memory of this rank's device. Thread-safe;
  /// asks the device.
  Result<std::unique_ptr<Ends>> make_ends(int peer, Window* window, bool direct) const;
  /// Has messages with that rank use `ends`. Before the first is launched, where nobody drives
  /// (Engine::exclusively).
  void meet(int peer, std::unique_ptr<Ends> ends);
  /// How `peer` is reached; messages wait until then. Call where nobody drives.
  void connect(int peer, transport::Channel* channel, bool crosses);

  struct Library;
  /// For `pair`, a communicator of this rank and `peer`, to carry what this rank sends to `peer`,
  /// or else receives from it. Thread-safe; asks the device.
  Result<std::unique_ptr<Library>> make_library(int peer, bool send, ccl::Communicator& pair) const;
  /// Has it do so once their `route` says so. Prepared for by `meet`; where nobody drives.
  void use_library(int peer, bool send, std::unique_ptr<Library> library);
  /// Of that direction, once ranks have met: by the launching thread, or where nobody drives. Lives
  /// as long as this.
  [[nodiscard]] Route& route(int peer, bool send) {
    return lane_of({.send = send, .peer = peer}).route;
  }

  /// A receive from any rank, which takes a device whose memory transports reach, meets those that
  /// `meet` has prepared for, and takes the first message of its tag that no earlier receive takes.
  /// Blocks while a pair's ends agree on its route. Starts `messages` once `user` has come to this
  /// point, and holds `user` up until it may use
  /// their memory. Null: they start at once. Call only while not `full`.
  Result<Ticket> launch(std::span<const Message> messages, TimePoint now, TimePoint deadline,
                        device::Stream* user);
  /// Has a graph that `user` records hold `messages`, all of which the library carries.
  Status capture(std::span<const Message> messages, device::Stream& user);
  /// Returns the target of that direction's messages: of those that the channel carries, or with
  /// `by_library` of those that the library does. Call once ranks have met.
  [[nodiscard]] const lower::Target& target(int peer, bool send, bool by_library) const;
  [[nodiscard]] bool full() const { return in_flight_.load() >= kMaxInFlight; }
  [[nodiscard]] static bool done(const Ticket& ticket);
  [[nodiscard]] bool idle() const { return !active(); }

  /// What is under way. Call where nobody drives.
  [[nodiscard]] std::vector<PendingMessage> pending();

  /// Ends everything in flight, what is being launched included: no user memory is touched once
  /// `idle`. Streams are let go as by Executor::abort, which comes first. Call where nobody drives.
  void abort();
  /// Payload bytes sent to other clusters and completed.
  [[nodiscard]] uint64_t bytes_sent() const { return wire_.bytes_sent(); }

  bool poll(TimePoint now) override;
  [[nodiscard]] bool active() const override { return in_flight_.load() > 0; }
  [[nodiscard]] ShmSource* shm_source() override { return nullptr; }
  [[nodiscard]] bool silent() const override {
    return (options_.device->capabilities() & device::kCooperative) == 0 || wire_.has_unread();
  }

 private:
  struct Lane;
  // One message on its way. Reused, so that steady state allocates nothing.
  struct Transit : Operation {
    using Operation::Operation;
    Message message;
    Lane* lane = nullptr;
    Group* group = nullptr;
    bool by_library = false;
    uint32_t first_time = 0;  ///< when its first slice comes, among those of its call
    uint64_t order = 0;       ///< among all; the engine's
  };
  // The messages of one call. Reused.
  struct Group {
    std::atomic<uint64_t> use{0};   ///< grows when it has ended
    std::atomic<uint32_t> left{0};  ///< messages that have not
  };
  // One direction between this rank and another; messages from a rank to itself have one, too, and
  // so have receives from any rank until they know from which.
  struct Lane {
    explicit Lane(plan::RankPlan plan) : program(std::move(plan)) {}
    int peer = -1;
    bool send = false;
    Window* window = nullptr;
    plan::Choice choice;
    Program program;
    std::unique_ptr<Interpreter> interpreter;
    bool copies_nothing = false;  ///< see lower::Reach::needs_no_copy
    /// Its Code's user stream, or the library's; null where neither is to be.
    std::unique_ptr<device::Stream> stream;
    std::unique_ptr<Rotation> rotation;
    Route route;
    std::unique_ptr<Library> library;  ///< null where it carries none
    uint32_t next_time = 0;  ///< the launching thread's: behind the slices of the call it launches
    std::atomic<uint64_t> retired{0};  ///< of these
    InFlight operations{8};            ///< the rest by the engine alone
    uint64_t begun = 0;                ///< receives
    transport::Channel* channel = nullptr;
    TimePoint left{};  ///< when the peer was first seen to have left
  };

  explicit PointToPoint(PointToPointOptions options);
  [[nodiscard]] Lane& lane_of(const Message& message) const;
  [[nodiscard]] Wire::Carried carried_by(int peer) const;
  Result<std::unique_ptr<Lane>> make_lane(int peer, bool send, Window* window, bool direct) const;

  // point_to_point_launch.cc
  /// Calls `visit(message, other_end)` for what is sent, then for what is received. A message to
  /// this rank itself comes once, with its other end.
  template <typename Visit>
  Status for_each(std::span<const Message> messages, Visit&& visit) const;
  Status prepare(std::span<const Message> messages, const Call& times);
  Status prepare(const Message& message, const Message* other_end, const Call& times);
  Status lower(Transit& transit, const Call& call);
  Status record(const Message& message, const Message* other_end, device::Stream& stream);
  Status take_buffers(Transit& transit);
  Status publish(Group& group);
  Status enqueue(device::Stream* user);
  Status enqueue_on_lanes(uint32_t end);
  Status enqueue_by_library();
  Status enqueue_end(Transit& transit);
  uint32_t set_times();
  Status enqueue_on_user(device::Stream* user);
  Status enqueue(Transit& transit, lower::Part part, device::Stream& stream);
  static Interpreter& interpreter_of(const Transit& transit);
  /// Whether it is enqueued on its lane's stream, rather than on the user's.
  static bool uses_stream(const Transit& transit) {
    return transit.by_library || !transit.lane->copies_nothing;
  }
  static bool is_first_of_stream(const Transit& transit) {
    return uses_stream(transit) && transit.first_time == 0;
  }
  Status fork(device::Stream* user);
  Status join(device::Stream* user);
  void give_up(device::Stream* user);

  // by_library.cc
  /// Whether `transit` cannot end without its other end.
  static bool awaits_peer(Transit& transit) {
    return transit.outstanding > 0 || (transit.by_library && !transit.is_finished());
  }
  /// False, and a fault, where the library of a message under way has failed.
  bool check_library(Lane& lane);
  void abort_libraries();
  [[nodiscard]] bool aborts_have_begun() const;

  // any_source.cc
  static bool precedes(const Transit& one, const Transit& other) { return one.order < other.order; }
  /// Gives receives from any rank what has come. True when any got something.
  bool match_any();
  bool match(Transit& any);
  /// Whether `any` may take the next message that `lane` receives.
  bool may_go_first(const Transit& any, Lane& lane);
  /// Whether `transit`, which is the next to post, must wait: what comes may be for a receive from
  /// any rank that was called before it.
  [[nodiscard]] bool is_held(const Lane& lane, const Transit& transit) const;
  bool check_senders(TimePoint now);

  // point_to_point.cc
  template <typename Visit>
  void for_each_in_flight(Visit&& visit);
  void admit();
  void release_streams();
  bool begin_receive(int peer, Operation& op);
  bool retire();
  bool retire_any();
  bool is_abandoned();
  [[nodiscard]] bool may_retire(Transit& transit);
  void end(Transit& transit);
  void check(TimePoint now);
  bool is_gone(Lane& lane, TimePoint now) const;
  bool check_lane(Lane& lane, TimePoint now);
  bool check_deadline(Transit& transit);
  void fault(const Fault& fault);

  PointToPointOptions options_;
  const bool host_memory_;                    ///< hosts reach the device's memory
  std::vector<std::unique_ptr<Lane>> lanes_;  ///< from and to rank r: 2r and 2r + 1
  std::unique_ptr<Lane> self_, any_lane_;     ///< the latter null where there can be none
  std::vector<Lane*> met_;                    ///< of `lanes_` those that there are, and `self_`
  std::unique_ptr<device::Event> forked_, joined_;
  Wire wire_;

  Pool<Transit> transits_;
  Pool<Group> groups_;
  std::vector<Transit*> launching_;   ///< of the call that is being launched: first what is sent
  std::vector<Transit*> by_library_;  ///< of these, in an order that all ranks share
  std::mutex mutex_;                  ///< guards what follows
  std::vector<Transit*> launched_;    ///< that the engine has not seen
  std::atomic<size_t> in_flight_{0};  ///< calls
  std::vector<Transit*> admitting_;   ///< the rest by the engine alone
  std::vector<Transit*> any_;         ///< receives from any rank that nothing has come for
  size_t next_any_ = 0;               ///< the place in `met_` of which the next is asked first
  uint64_t admitted_ = 0;
  TimePoint next_deadline_check_{};
  bool faulted_ = false;
  bool released_ = false;  ///< after an abort: the streams' waits
  std::atomic<bool> aborted_{false};
};

/// Both directions between this rank and another.
struct PointToPoint::Ends {
  std::unique_ptr<Lane> receives, sends;
};

/// What it takes for the library to carry a lane's messages.
struct PointToPoint::Library {
  explicit Library(plan::RankPlan plan) : program(std::move(plan)) {}
  ccl::Communicator* pair = nullptr;
  Program program;
  std::unique_ptr<Interpreter> interpreter;
  std::unique_ptr<device::Stream> recorded;  ///< for graphs, beside what is in flight
};

}  // namespace hetccl::exec
