// Turns calls into operations: checks them, plans and tunes them, hands them to the executor, and
// reports on them afterwards.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/arguments.h"
#include "comm/chores.h"
#include "comm/fabric.h"
#include "comm/programs.h"
#include "comm/red_ops.h"
#include "comm/tuning.h"
#include "comm/tuning_file.h"
#include "comm/user_streams.h"
#include "exec/executor.h"

namespace hetccl::comm {

struct Statistics {
  uint64_t operations = 0;
  uint64_t cross_bytes_sent = 0;
  uint64_t least_cross_bytes = 0;
  uint64_t plans = 0;
};

/// Thread-safe; but ranks must agree on the order of their collectives.
class Dispatch {
 public:
  /// All outlive it, but for `chores`, which waits for its users before they go.
  Dispatch(Context& context, Membership& membership, Fabric& fabric, Chores& chores);

  /// Whether it can be called: what `start` would find wrong with it.
  Status check(const CollectiveArguments& arguments) { return check(Work{&arguments}); }
  Status check(std::span<const exec::Message> messages) { return check(Work{nullptr, messages}); }
  /// Names a started call, for `complete`.
  using Ticket = exec::Ticket;
  /// How a call is made.
  struct Start {
    void* stream = nullptr;  ///< the device's own
    int64_t timeout_ms = 0;  ///< its deadline; 0: the communicator's
    bool waits = true;       ///< without a stream its caller will do nothing but wait for it
  };
  /// Enqueues on the stream; without one the collective starts at once.
  Result<Ticket> start(const CollectiveArguments& arguments, const Start& how) {
    return launch({&arguments, {}, how});
  }
  /// The same for messages that go at the same time. Connecting to their other ends goes on in the
  /// background, until those have messages for this rank.
  Result<Ticket> start(std::span<const exec::Message> messages, const Start& how) {
    return launch({nullptr, messages, how});
  }
  /// Waits, driving progress, for what was started without a stream.
  Status complete(const Ticket& ticket);
  /// Waits, driving progress, until nothing is in flight: false at the deadline.
  Result<bool> await_all(TimePoint deadline);
  /// Whether that is no stream: null is the default stream of a device that has one. Once it is
  /// known to be set up.
  [[nodiscard]] bool is_no_stream(const void* native) const {
    return native == nullptr && (device_->capabilities() & device::kDefaultStream) == 0;
  }
  /// `start`, and without a stream `complete`.
  template <typename Arguments = CollectiveArguments>
  Status call(const Arguments& arguments, void* native_stream) {
    HETCCL_ASSIGN(const Ticket ticket, start(arguments, {.stream = native_stream}));
    return is_no_stream(native_stream) ? complete(ticket) : Status();
  }
  /// Whether what is enqueued on that stream becomes part of a graph.
  Result<bool> is_capturing(void* native_stream);

  /// Makes an operator for collectives of `type` on this communicator, which frees what is left.
  /// Unsupported where the host cannot read a scalar in the device's memory (`on_device`).
  Result<int> create_pre_mul_sum(DataType type, const void* scalar, bool on_device);
  [[nodiscard]] RedOps& red_ops() { return red_ops_; }
  /// Computes a Reduction with encoded operands in memory of this rank's device, on
  /// `native_stream`; without one the calling thread has done so on return. Communicates nothing.
  /// Unsupported where the device does not encode.
  Status recode(const device::Reduction& reduction, void* native_stream);

  /// Tells the cluster's library, and transports, of memory that calls will use. A number of this
  /// communicator's, or 0 where nobody has a use for it.
  Result<uintptr_t> register_memory(void* memory, size_t bytes);
  /// InvalidArgument where `number` is none of these.
  Status deregister_memory(uintptr_t number);
  /// How long the call is expected to take, in seconds; see hetcclGroupSimulateEnd. Unsupported
  /// where nothing predicts it.
  Result<double> predict(const CollectiveArguments& arguments);

  void set_timeout(int64_t timeout_ms) { timeout_ms_.store(timeout_ms); }
  /// Ok once everything is known of this communicator: InvalidUsage while it is being set up, the
  /// reason when it could not be.
  [[nodiscard]] Status known();
  /// Ok while calls may be made.
  [[nodiscard]] Status check_ready();
  /// The communicator's first failure, naming the culprit, as all ranks know it; ok while there is
  /// none. Waits for the ranks' agreement on it, at most the liveness deadline, when this rank has
  /// seen one first.
  [[nodiscard]] Status failure();
  /// The last operations, what is known of them and the failure, as JSON; at any time.
  [[nodiscard]] std::string dump();
  // The rest only where `known` is ok.
  [[nodiscard]] Statistics statistics();
  /// The state of tuning, as JSON: see hetcclCommGetTuning.
  [[nodiscard]] std::string tuning_json();
  /// The program has finished a step (HETCCL_TUNE=step). At any time.
  void step();
  /// From the next call on, calls like `key` use `setting` on this rank. Every rank does so between
  /// the same calls. JSON; InvalidArgument where it is none of this communicator's.
  Status set_tuning(std::string_view json);
  /// The settings to search for such a call, as JSON, its default first.
  Result<std::string> tuning_space(const Signature& signature);

  // For the communicator.
  /// Makes the executor, and measures, once the fabric is open.
  Status open();
  /// Waits for everything in flight, and closes the communicator to further calls.
  Status finish();
  /// Fails the communicator for that cause: ends everything in flight.
  void stop(Status status);
  [[nodiscard]] bool idle() const { return executor_ == nullptr || executor_->idle(); }
  /// Waits until it is: false where a device does not end what it was given, after a failure.
  bool wait_until_idle() {
    return verdict_.drive_until([this] { return idle(); });
  }
  /// Frees the executor, before Fabric::close. `ended` as there.
  void close(bool ended);
  void write_trace();
  /// Tells the ranks of a failure that this one has seen.
  void report(int culprit, const Status& status);
  /// How far this rank is. Thread-safe.
  [[nodiscard]] bootstrap::Position position(uint64_t sequence) const;
  /// How many collectives were called.
  [[nodiscard]] uint64_t called() const { return recorder_.called(); }
  /// Null: nothing can be tuned.
  [[nodiscard]] Tuning* tuning() const { return tuning_.get(); }

 private:
  // One call: a collective or messages.
  struct Work {
    const CollectiveArguments* collective = nullptr;
    std::span<const exec::Message> messages{};
    Start how{};
    TimePoint now{}, deadline{};
    bool captured = false;  ///< it becomes part of a graph
    [[nodiscard]] std::string text() const;
  };

  exec::ExecutorOptions executor_options();
  Status open_executor();
  [[nodiscard]] OnException on_exception();
  // Whether streams advance by themselves.
  [[nodiscard]] bool on_device() const {
    return (device_->capabilities() & device::kCooperative) == 0;
  }
  [[nodiscard]] bool on_host_memory() const {
    return (device_->capabilities() & device::kHostAccessible) != 0;
  }
  [[nodiscard]] int rank() const { return membership_.rank(); }
  [[nodiscard]] int n_ranks() const { return membership_.n_ranks(); }
  [[nodiscard]] const topology::Topology& topology() const { return membership_.topology(); }
  // measure.cc
  Status measure();
  Status open_tuning();
  Status exchange_tactics();
  Status exchange_knowledge();
  void keep_learnt();
  Status measure_calls(std::vector<topology::Measurement>& mine);
  Result<Duration> time_calls(exec::Executor& executor, exec::Program& program, exec::Call call);
  // tune_calls.cc
  [[nodiscard]] tune::Limits limits() const;
  // diagnosis.cc
  void dump_failure();
  // launch.cc
  Status check(const Work& work);
  Status check_host_memory(const Work& work) const;
  Result<device::Stream*> stream_for(void* native);
  Result<Ticket> launch(Work work);
  Result<bool> is_captured(const Work& work, std::unique_lock<std::mutex>& lock);
  Status await_library(const Work& work, std::unique_lock<std::mutex>& lock);
  Status await_library(int peer, exec::Route& route, TimePoint deadline);
  [[nodiscard]] bool is_device_work_alone(const Signature& signature) const;
  Status fail_launch(const Status& why, const Work& work);
  Result<Ticket> try_enqueue(const Work& work);
  Result<Ticket> enqueue_collective(const Work& work);
  Tuning::Use find_setting(const Work& work, const Signature& signature, uint64_t block);
  Result<Ticket> enqueue_messages(const Work& work);
  Status wait_for_room(const Work& work, std::unique_lock<std::mutex>& lock);

  Context& context_;
  Membership& membership_;
  Verdict& verdict_;  // of the members
  Fabric& fabric_;
  Chores& chores_;
  std::atomic<int64_t> timeout_ms_;
  RedOps red_ops_;
  device::Device* device_ = nullptr;  // of the fabric
  std::unique_ptr<exec::Executor> executor_;
  exec::Executor* measuring_ = nullptr;  // another, during init; where nobody drives

  // Guards launching: what follows, and the caller's side of `executor_` and `fabric_`.
  std::mutex launch_mutex_;
  std::unique_ptr<device::Stream> own_stream_;  // for calls without a stream
  std::unique_ptr<UserStreams> user_streams_;
  std::unique_ptr<Programs> programs_;
  std::unique_ptr<Tuning> tuning_;           // null: nothing can be tuned
  std::unique_ptr<TuningFile> tuning_file_;  // null: without HETCCL_TUNE
  Tactics tactics_;                          // that the libraries of all clusters take
  /// Memory that the user has registered.
  struct UserRegistration {
    void* by_library = nullptr;  // null: it knows nothing of it
    exec::RegisteredMemory::Hold hold;
  };
  std::map<uintptr_t, UserRegistration> registrations_;  // by number
  uintptr_t last_registration_ = 0;
  uint64_t sequence_ = 0;
  Statistics statistics_;

  exec::Recorder recorder_, message_recorder_{256};
  std::unique_ptr<exec::Tracer> tracer_;  // null without HETCCL_TRACE
};

}  // namespace hetccl::comm
