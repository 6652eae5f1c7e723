// Runs a communicator's operations: collectives, and messages between two ranks. All of them are
// Code. `launch` lowers a plan for the call and enqueues the streams' instructions on the calling
// thread. The engine runs the lanes' instructions through `poll`. A call is one operation, or
// several messages posted together; operations belong to orders (exec/order.h).
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
  std::string library;               ///< the name of `ccl`
  uint64_t collectives = 0;          ///< the communicator's number in headers of collectives
  uint64_t messages = 0;             ///< the communicator's number in headers of messages
  int rank = 0;
  int n_ranks = 1;
  int local_rank = 0;  ///< in its cluster
  /// Plans of messages refer to it; must outlive the executor. Null: no messages are launched.
  const topology::Topology* topology = nullptr;
  /// The device memory registered with transports; null: no transport registers.
  RegisteredMemory* memory = nullptr;
  Recorder* recorder = nullptr;          ///< records collectives; may be null
  Recorder* message_recorder = nullptr;  ///< records messages; may be null
  Tracer* tracer = nullptr;              ///< may be null
  /// Settles the marks of single library calls; null: each such call writes a flag.
  Settler* settler = nullptr;
  const Departures* departures = nullptr;  ///< may be null
  bool launches_wait = false;              ///< a kernel's launch returns once the kernel has ended
  /// True if some peers share windows with this rank.
  bool windows = false;
  /// The time, after a rank's departure, that an operation lacking it may still block others.
  Duration departure_grace{};
  /// Called once a launch has handed its operations to the engine, before enqueueing that may block
  /// until their messages have moved. May be empty.
  std::function<void()> on_published;
  /// Called once, by the driving thread, when a channel, the vendor library or a deadline fails.
  /// Must not block.
  std::function<void(const Fault&)> on_fault;
  /// Called by the driving thread for each completed call that is `timed`, with the time since the
  /// user's stream reached it, and its end. Must not block. May be empty.
  std::function<void(uint64_t sequence, Duration took, TimePoint end)> on_timed;
};

/// One thread at a time calls `launch`, `capture` and `all_reduce_at_once`; the engine calls
/// `poll`. `connect`, `meet`, `use_library`, `abort`, `describe_oldest` and `messages_in_flight`
/// run under Engine::exclusively. Everything else is thread-safe.
class Executor : public progress::Driven {
 public:
  /// The maximum number of collectives in flight, and of calls with messages in flight.
  static constexpr size_t kMaxInFlight = InFlight::kMost;

  static Result<std::unique_ptr<Executor>> create(ExecutorOptions options);
  ~Executor() override;

  /// Makes `peer` known before the first program that exchanges data with it is launched, and again
  /// once its channel exists. For message channels, call it after `meet`.
  void connect(const Peer& peer);

  /// Enqueues `call` on `user`. `program` belongs to this executor alone and must outlive the
  /// operation. Requires not `full`. After an error, the work enqueued so far is an operation in
  /// flight that `abort` ends.
  Result<Ticket> launch(Program& program, const plan::Choice& choice, const Call& call,
                        device::Stream& user);
  /// Runs an all-reduce that is one library call, for a caller that will wait. Requires that no
  /// collective is in flight. Returns true if it is complete on return; the executor then keeps no
  /// record of it. Otherwise pass it to `launch`, marked as begun.
  Result<bool> all_reduce_at_once(const Program& program, const Call& call, device::Stream& user);
  /// Records the `program` of a single cluster into the graph that `user` captures. The graph then
  /// runs it without the executor's knowledge.
  Status capture(Program& program, const Call& call, device::Stream& user);
  [[nodiscard]] bool full() const { return collectives_.in_flight.full(); }
  [[nodiscard]] bool has_collectives() const { return !collectives_.in_flight.empty(); }

  // Makes the orders of messages with `peer`, whose channel comes later. Calls the driver.
  // (exec/meet.cc makes the orders, exec/message_launch.cc launches messages.)
  [[nodiscard]] Result<MessageEnds> make_ends(const Peer& peer) const;
  /// Makes messages with `peer` use `ends`. Call before the first is launched. Messages wait for
  /// `connect`.
  void meet(int peer, MessageEnds ends);
  /// Prepares the cluster's library to carry this rank's sends to `peer` (`send`) or its receives
  /// from `peer`. Calls the driver.
  [[nodiscard]] Result<std::unique_ptr<MessageLibrary>> make_library(int peer, bool send) const;
  /// Makes `pair` carry these messages from the number that their `route` says. Call after `meet`.
  void use_library(int peer, bool send, std::unique_ptr<MessageLibrary> library,
                   ccl::Communicator& pair);
  /// Returns the route of that direction, after `meet`. Called by the launching thread or under
  /// Engine::exclusively. Lives as long as the executor.
  [[nodiscard]] Route& route(int peer, bool send) { return messages_.of(peer, send).route; }
  /// Returns the lowering target of messages of that direction that the channel carries, or,
  /// `by_library`, of those that the library carries. Call after `meet`.
  [[nodiscard]] const lower::Target& message_target(int peer, bool send, bool by_library) const;

  /// Starts `messages` together when `user` reaches this point, and holds `user` until it may use
  /// their memory. With `user` null they start at once. Any-source receives need a device whose
  /// memory transports can reach. They match the peers passed to `meet`, and take the first message
  /// with their tag that no earlier receive takes. Blocks while both ends of a pair agree on its
  /// route. Requires not `full_of_messages`.
  Result<Ticket> launch(std::span<const Message> messages, TimePoint now, TimePoint deadline,
                        device::Stream* user);
  /// Records `messages` into the graph that `user` captures. The library must carry all of them.
  Status capture(std::span<const Message> messages, device::Stream& user);
  [[nodiscard]] bool full_of_messages() const { return messages_.calls.load() >= kMaxInFlight; }
  /// Returns the records made at launch, because the recorder may have forgotten old ones.
  [[nodiscard]] std::vector<Record> messages_in_flight();

  [[nodiscard]] bool idle() const { return !active(); }
  /// Ends everything in flight, launches under way included. User memory is not touched once
  /// `idle`. `poll` releases the streams after the vendor's aborts have begun. Later launches end
  /// at once.
  void abort();
  /// Returns the payload bytes sent to other clusters and completed.
  [[nodiscard]] uint64_t bytes_sent() const { return wire_.bytes_sent(); }

  /// Describes the oldest collective in flight and its position: "all_reduce #3 (10 float32, sum):
  /// slice 2 of 12, step 4 (recv from rank 1)". Without a collective, describes a message; "" when
  /// idle. Call before `abort`.
  [[nodiscard]] std::string describe_oldest();

  bool poll(TimePoint now) override;
  [[nodiscard]] bool active() const override {
    return !collectives_.in_flight.empty() || messages_.calls.load() > 0;
  }
  /// Operations that end by marks are not urgent.
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
  /// Returns this rank's traits as `local_rank` of a cluster.
  [[nodiscard]] lower::RankTraits traits_of_rank(int local_rank) const;
  // Defined in launch.cc.
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
  // Defined in meet.cc.
  [[nodiscard]] Result<std::unique_ptr<MessageOrder>> make_order(const Peer& peer, bool send) const;
  // Calls `visit(message, other_end)` for all sends, then for all receives. A message to this rank
  // itself is visited once, with its other end. Defined in message_launch.cc.
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
  /// Runs one part of the Code of the action's message by `run()`, on `stream`.
  template <typename Run>
  Status carry_out(const lower::Group::Action& action, device::Stream* stream, device::Stream* user,
                   Run&& run);
  Status join(device::Stream& stream, device::Stream& user);
  void give_up(device::Stream* user);
  // Defined in executor.cc.
  void admit();
  bool retire(TimePoint now);
  bool retire(Order& order, TimePoint now);
  bool may_retire(Operation& op);
  void end(Operation& op);
  void end_call(Operation& lead);
  bool note_start(Operation& op, TimePoint now) const;
  void note_starts(TimePoint now);
  void note_end(Operation& op, TimePoint now);
  void report_time(const Operation& op, TimePoint now);
  void observe(uint64_t before, TimePoint now);
  bool is_abandoned();
  bool has_failed_library(const Operation& op);
  [[nodiscard]] bool aborts_have_begun() const;
  void release_streams();
  /// If `holds` is false, fails the communicator: `invariant` is broken.
  void require(bool holds, const char* invariant);
  void fault(Fault fault);

  ExecutorOptions options_;
  const bool host_memory_;        ///< the host can reach the device's memory
  std::unique_ptr<Batch> batch_;  ///< of the launching thread; shared by all interpreters
  Pool<Operation> operations_;
  Order collectives_;
  MessageOrders messages_;
  Wire wire_;
  std::unique_ptr<EndMarks> marks_;  ///< null: not used
  std::unique_ptr<Watch> watch_;
  std::atomic<uint64_t> unmarked_{0};  ///< collectives in flight without a mark
  bool registers_ = false;             ///< some lane of collectives registers memory
                                       ///< (Peer::registers)
  // Used by the launching thread.
  std::vector<Window*> windows_;       ///< by lane of the program being launched
  std::vector<Operation*> launching_;  ///< the messages of one call, sends first
  uint64_t posted_ = 0;                ///< messages launched so far
  lower::Group group_;                 ///< the messages being launched or captured
  std::unique_ptr<device::Event> forked_, joined_;
  // Used by the engine.
  uint64_t noted_ = 0;  ///< collectives whose start was noted
  bool faulted_ = false;
  std::atomic<bool> aborted_{false};
  bool released_ = false;  ///< after an abort: stream waits are released
};

}  // namespace hetccl::exec
