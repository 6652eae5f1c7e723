// Runs what a communicator is asked for: collectives, and messages from one rank to another. All of
// it is Code. `launch` lowers a plan for the call, enqueues the streams' instructions on the
// calling thread, and leaves the lanes' to the engine, which calls `poll`. A call is one operation
// or, of messages, several that go at the same time; operations belong to orders (exec/order.h).
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ccl/ccl.h"
#include "device/device.h"
#include "exec/message.h"
#include "exec/order.h"
#include "exec/pool.h"
#include "exec/recorder.h"
#include "exec/tracer.h"
#include "exec/watch.h"
#include "exec/wire.h"
#include "lower/group.h"
#include "progress/engine.h"
#include "topology/topology.h"

namespace hetccl::exec {

struct ExecutorOptions {
  const Clock* clock = &steady_clock();
  device::Device* device = nullptr;
  ccl::Communicator* ccl = nullptr;  ///< of this rank's cluster
  std::string library;               ///< its name
  uint64_t collectives = 0;          ///< the communicator's number in headers
  uint64_t messages = 0;             ///< the same in those of messages
  int rank = 0;
  int n_ranks = 1;
  int local_rank = 0;  ///< in its cluster
  /// Whose plans messages take; outlives it. Null: no messages are launched.
  const topology::Topology* topology = nullptr;
  /// The device's memory that transports know; null where none registers any.
  RegisteredMemory* memory = nullptr;
  Recorder* recorder = nullptr;          ///< of collectives; may be null
  Recorder* message_recorder = nullptr;  ///< of messages; may be null
  Tracer* tracer = nullptr;              ///< may be null
  /// Finds out when calls that are one library call have ended; null: each writes a flag.
  Settler* settler = nullptr;
  const Departures* departures = nullptr;  ///< may be null
  bool launches_wait = false;              ///< a kernel's launch returns once the kernel has ended
  /// Some peers share windows with this rank.
  bool windows = false;
  /// How long after a rank's departure an operation that misses it may still hold up others.
  Duration departure_grace{};
  /// Called where enqueueing may block, once messages can move that it may wait for. May be empty.
  std::function<void()> on_published;
  /// Called once, by whoever drives, when a channel, the vendor library or a deadline fails. Must
  /// not block.
  std::function<void(const Fault&)> on_fault;
  /// Called by whoever drives, for each call that is `timed` and has completed: how long it took
  /// from where the user's stream had reached it, and when it ended. Must not block. May be empty.
  std::function<void(uint64_t sequence, Duration took, TimePoint end)> on_timed;
};

/// `launch`, `capture` and `all_reduce_at_once` by one thread at a time; `poll` by the engine;
/// `connect`, `meet`, `use_library`, `abort`, `standing` and `messages_in_flight` where nobody
/// drives (Engine::exclusively); the rest is thread-safe.
class Executor : public progress::Driven {
 public:
  /// Collectives in flight; and calls with messages.
  static constexpr size_t kMaxInFlight = InFlight::kMost;

  static Result<std::unique_ptr<Executor>> create(ExecutorOptions options);
  ~Executor() override;

  /// Before the first program is launched that exchanges messages with that rank, and again once
  /// its channel is made. The same for messages, after `meet`.
  void connect(const Peer& peer);

  /// Enqueues `call` on `user`. `program` is this executor's alone and must outlive the operation.
  /// Call only while not `full`. After an error, what was enqueued so far is an operation in flight
  /// that `abort` ends.
  Result<Ticket> launch(Program& program, const plan::Choice& choice, const Call& call,
                        device::Stream& user);
  /// Begins an all-reduce that is one library call and whose caller will wait, while no collective
  /// is in flight: true where it is complete on return, unknown to this executor; else `launch` it,
  /// as begun.
  Result<bool> all_reduce_at_once(const Program& program, const Call& call, device::Stream& user);
  /// Has a stream that records a graph take up the `program` of one cluster, which then runs
  /// whenever the graph does, unknown to this executor.
  Status capture(Program& program, const Call& call, device::Stream& user);
  [[nodiscard]] bool full() const { return collectives_.in_flight.full(); }
  [[nodiscard]] bool has_collectives() const { return !collectives_.in_flight.empty(); }

  // Messages: exec/meet.cc makes their orders, exec/message_launch.cc launches them.
  /// Makes the orders of messages with that rank, whose channel comes later. Asks the device.
  [[nodiscard]] Result<MessageEnds> make_ends(const Peer& peer) const;
  /// Has messages with that rank use `ends`: before the first is launched. They wait for `connect`.
  void meet(int peer, MessageEnds ends);
  /// For a communicator of this rank and `peer` to carry what this rank sends to `peer`, or else
  /// receives from it. Asks the device.
  [[nodiscard]] Result<std::unique_ptr<MessageLibrary>> make_library(int peer, bool send) const;
  /// Has `pair` do so once their `route` says so. After `meet`.
  void use_library(int peer, bool send, std::unique_ptr<MessageLibrary> library,
                   ccl::Communicator& pair);
  /// Of that direction, once ranks have met: by the launching thread, or where nobody drives. Lives
  /// as long as this.
  [[nodiscard]] Route& route(int peer, bool send) { return messages_.of(peer, send).route; }
  /// The target of that direction's messages: of those that the channel carries, or with
  /// `by_library` of those that the library does. Call once ranks have met.
  [[nodiscard]] const lower::Target& message_target(int peer, bool send, bool by_library) const;

  /// Starts `messages`, all of them at the same time, once `user` has come to this point, and holds
  /// `user` up until it may use their memory. Null: they start at once. A receive from any rank,
  /// which takes a device whose memory transports reach, meets those that `meet` has prepared for,
  /// and takes the first message of its tag that no earlier receive takes. Blocks while a pair's
  /// ends agree on its route. Call only while not `full_of_messages`.
  Result<Ticket> launch(std::span<const Message> messages, TimePoint now, TimePoint deadline,
                        device::Stream* user);
  /// Has a graph that `user` records hold `messages`, all of which the library carries.
  Status capture(std::span<const Message> messages, device::Stream& user);
  [[nodiscard]] bool full_of_messages() const { return messages_.calls.load() >= kMaxInFlight; }
  /// As at their launch: of old ones the recorder may know nothing any more.
  [[nodiscard]] std::vector<Record> messages_in_flight();

  [[nodiscard]] bool idle() const { return !active(); }
  /// Ends everything in flight, what is being launched included: no user memory is touched once
  /// `idle`. Streams are released once the vendor's aborts have begun, by `poll`. Later launches
  /// end at once.
  void abort();
  /// Payload bytes sent to other clusters and completed.
  [[nodiscard]] uint64_t bytes_sent() const { return wire_.bytes_sent(); }

  /// The oldest collective in flight and where it stands: "all_reduce #3 (10 float32, sum): slice 2
  /// of 12, step 4 (recv from rank 1)"; where there is none, the same of a message; "" when idle.
  /// Call before `abort`.
  [[nodiscard]] std::string standing();

  bool poll(TimePoint now) override;
  [[nodiscard]] bool active() const override {
    return !collectives_.in_flight.empty() || messages_.calls.load() > 0;
  }
  /// Marks have time.
  [[nodiscard]] bool urgent() const override {
    return unmarked_.load() > 0 || messages_.calls.load() > 0;
  }
  [[nodiscard]] ShmSource* shm_source() override {
    return options_.ccl == nullptr ? nullptr : options_.ccl->shm_source();
  }
  [[nodiscard]] bool silent() const override;

 private:
  explicit Executor(ExecutorOptions options);
  Status open();
  /// This rank's traits as `local_rank` of a cluster.
  [[nodiscard]] lower::RankTraits traits_of_rank(int local_rank) const;
  // launch.cc
  Result<Program::Lowered> lower_for(Program& program, const plan::Choice& choice, const Call& call,
                                     bool registered);
  [[nodiscard]] bool registers(const Program& program) const {
    return registers_ && !program.peers().empty();
  }
  bool hold_memory(Operation& op, const Program& program, const Call& call);
  void bind(Program& program);
  void note_launch(const Call& call, uint64_t slice_elements, uint32_t slices);
  Status prepare(Operation& op, Program& program, const plan::Choice& choice, const Call& call);
  Status prepare(Operation& op, const Program::Lowered& lowered, const Call& call);
  void configure_library(const Call& call);
  void choose_end(Operation& op);
  // meet.cc
  [[nodiscard]] Result<std::unique_ptr<MessageOrder>> make_order(const Peer& peer, bool send) const;
  // message_launch.cc
  /// Calls `visit(message, other_end)` for what is sent, then for what is received. A message to
  /// this rank itself comes once, with its other end.
  template <typename Visit>
  Status for_each(std::span<const Message> messages, Visit&& visit) const;
  Status prepare(std::span<const Message> messages, const Call& times);
  Status prepare(const Message& message, const Message* other_end, const Call& times);
  Status lower(Operation& op, const Call& call);
  Status record(const Message& message, const Message* other_end, device::Stream& stream);
  Status publish();
  static Record record_of(const Operation& message);
  Status enqueue(device::Stream* user);
  [[nodiscard]] device::Stream* stream_of(const Operation& op, device::Stream* user) const;
  /// `run()` does a part of the Code of `action`'s message, on `stream`.
  template <typename Run>
  Status carry_out(const lower::Group::Action& action, device::Stream* stream, device::Stream* user,
                   Run&& run);
  Status join(device::Stream& stream, device::Stream& user);
  void give_up(device::Stream* user);
  // executor.cc
  void admit();
  bool retire(TimePoint now);
  bool retire(Order& order, TimePoint now);
  bool may_retire(Operation& op);
  void end(Operation& op);
  void end_call(Operation& lead);
  bool note_start(Operation& op, TimePoint now) const;
  void note_starts(TimePoint now);
  void note_end(Operation& op, TimePoint now);
  void tell_time(const Operation& op, TimePoint now);
  void observe(uint64_t before, TimePoint now);
  bool is_abandoned();
  bool has_failed_library(const Operation& op);
  [[nodiscard]] bool aborts_have_begun() const;
  void release_streams();
  /// `holds`; where it does not, the communicator fails: `invariant` is broken.
  void require(bool holds, const char* invariant);
  void fault(Fault fault);

  ExecutorOptions options_;
  const bool host_memory_;        ///< hosts reach the device's memory
  std::unique_ptr<Batch> batch_;  ///< the launching thread's; of all orders' interpreters
  Pool<Operation> operations_;
  Order collectives_;
  MessageOrders messages_;
  Wire wire_;
  std::unique_ptr<EndMarks> marks_;  ///< null: there are none
  std::unique_ptr<Watch> watch_;
  std::atomic<uint64_t> unmarked_{0};  ///< collectives in flight without a mark
  bool registers_ = false;             ///< some lane of collectives does (Peer::registers)
  // The launching thread's.
  std::vector<Window*> windows_;       ///< by lane of the program that is being launched
  std::vector<Operation*> launching_;  ///< messages of one call: first what is sent
  uint64_t posted_ = 0;                ///< messages so far
  lower::Group group_;                 ///< these, or those that a graph is to hold
  std::unique_ptr<device::Event> forked_, joined_;
  // The engine's.
  uint64_t noted_ = 0;  ///< collectives whose start was noted
  bool faulted_ = false;
  std::atomic<bool> aborted_{false};
  bool released_ = false;  ///< after an abort: its streams' waits
};

}  // namespace hetccl::exec
