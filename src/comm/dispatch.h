// Turns calls into operations: checks, plans and tunes each call, hands it to the executor, and
// reports its outcome.
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

/// Thread-safe, but all ranks must call collectives in the same order.
class Dispatch {
 public:
  /// All arguments outlive it, except `chores`, which waits for its users before it ends.
  Dispatch(Context& context, Membership& membership, Fabric& fabric, Chores& chores);

  /// Returns the error that `start` would return for these arguments.
  Status check(const CollectiveArguments& arguments) { return check(Work{&arguments}); }
  Status check(std::span<const exec::Message> messages) { return check(Work{nullptr, messages}); }
  /// Identifies a started call, for `complete`.
  using Ticket = exec::Ticket;
  /// Options of one call.
  struct Start {
    void* stream = nullptr;  ///< the device's native stream
    int64_t timeout_ms = 0;  ///< deadline of the call; 0: the communicator's
    bool waits = true;       ///< without a stream: the caller will only wait for it
  };
  /// Enqueues the call on the stream. Without a stream, starts it at once.
  Result<Ticket> start(const CollectiveArguments& arguments, const Start& how) {
    return launch({&arguments, {}, how});
  }
  /// Starts messages that are posted together. Connects to their peers in the background; a
  /// connection completes when the peer has messages for this rank.
  Result<Ticket> start(std::span<const exec::Message> messages, const Start& how) {
    return launch({nullptr, messages, how});
  }
  /// Waits for a call started without a stream, and drives progress meanwhile.
  Status complete(const Ticket& ticket);
  /// Waits until nothing is in flight, driving progress. Returns false at the deadline.
  Result<bool> await_all(TimePoint deadline);
  /// Returns whether `native` means "no stream": null is the default stream on devices that have
  /// one. Requires a finished initialisation.
  [[nodiscard]] bool is_no_stream(const void* native) const {
    return native == nullptr && (device_->capabilities() & device::kDefaultStream) == 0;
  }
  /// Calls `start`, and `complete` if there is no stream.
  template <typename Arguments = CollectiveArguments>
  Status call(const Arguments& arguments, void* native_stream) {
    HETCCL_ASSIGN(const Ticket ticket, start(arguments, {.stream = native_stream}));
    return is_no_stream(native_stream) ? complete(ticket) : Status();
  }
  /// Returns whether work enqueued on that stream is captured into a graph.
  Result<bool> is_capturing(void* native_stream);

  /// Makes a pre-multiplied-sum operator for `type`. Remaining operators are freed with the
  /// communicator. Returns Unsupported if `scalar` is in device memory (`on_device`) that the host
  /// cannot read.
  Result<int> create_pre_mul_sum(DataType type, const void* scalar, bool on_device);
  [[nodiscard]] RedOps& red_ops() { return red_ops_; }
  /// Computes a Reduction with encoded operands in device memory of this rank, on `native_stream`;
  /// without a stream it is complete on return. Does not communicate. Returns Unsupported if the
  /// device cannot encode.
  Status recode(const device::Reduction& reduction, void* native_stream);

  /// Registers memory for later calls with the cluster's library and the transports. Returns a
  /// handle of this communicator, or 0 if nothing uses the registration.
  Result<uintptr_t> register_memory(void* memory, size_t bytes);
  /// Returns InvalidArgument if `number` is not such a handle.
  Status deregister_memory(uintptr_t number);
  /// Returns the expected time of the call in seconds; see hetcclGroupSimulateEnd. Returns
  /// Unsupported if there is no prediction.
  Result<double> predict(const CollectiveArguments& arguments);

  void set_timeout(int64_t timeout_ms) { timeout_ms_.store(timeout_ms); }
  /// Returns ok once initialisation is complete, InvalidUsage while it runs, or the reason why it
  /// failed.
  [[nodiscard]] Status known();
  /// Returns ok while calls may be made.
  [[nodiscard]] Status check_ready();
  /// Returns the communicator's first failure as all ranks agreed on it, naming the culprit; ok if
  /// there is none. If this rank saw a failure first, waits for that agreement, at most the
  /// liveness deadline.
  [[nodiscard]] Status failure();
  /// Returns the last operations, their state and the failure as JSON. May be called at any time.
  [[nodiscard]] std::string dump();
  // Complete only if `known` is ok.
  [[nodiscard]] Statistics statistics();
  /// Returns the state of tuning as JSON: see hetcclCommGetTuning.
  [[nodiscard]] std::string tuning_json();
  /// Tells tuning that the program has finished a step (HETCCL_TUNE=step). May be called at any
  /// time.
  void step();
  /// Makes calls like `key` use `setting` from this rank's next call on. Every rank must do so
  /// between the same calls. Takes JSON; returns InvalidArgument if it does not fit this
  /// communicator.
  Status set_tuning(std::string_view json);
  /// Returns the settings to search for such a call as JSON, the default first.
  Result<std::string> tuning_space(const Signature& signature);

  // Makes the executor and measures. Called by Communicator once the fabric is open.
  Status open();
  /// Waits for everything in flight, and closes the communicator to further calls.
  Status finish();
  /// Fails the communicator with `status` and ends everything in flight.
  void stop(Status status);
  [[nodiscard]] bool idle() const { return executor_ == nullptr || executor_->idle(); }
  /// Waits until nothing is in flight. Returns false if, after a failure, a device does not finish
  /// its work.
  bool wait_until_idle() {
    return verdict_.drive_until([this] { return idle(); });
  }
  /// Frees the executor. Call before Fabric::close; `ended` as there.
  void close(bool ended);
  void write_trace();
  /// Reports a failure that this rank has seen to all ranks.
  void report(int culprit, const Status& status);
  /// Returns how far this rank is with call `sequence`. Thread-safe.
  [[nodiscard]] bootstrap::Position position(uint64_t sequence) const;
  /// Returns the number of collectives called.
  [[nodiscard]] uint64_t called() const { return recorder_.called(); }
  /// Null: tuning is not possible.
  [[nodiscard]] Tuning* tuning() const { return tuning_.get(); }

 private:
  // One call: a collective, or messages.
  struct Work {
    const CollectiveArguments* collective = nullptr;
    std::span<const exec::Message> messages{};
    Start how{};
    TimePoint now{}, deadline{};
    bool captured = false;  ///< captured into a graph
    [[nodiscard]] std::string text() const;
  };

  exec::ExecutorOptions executor_options();
  Status open_executor();
  [[nodiscard]] OnException on_exception();
  // Returns whether streams advance without the host.
  [[nodiscard]] bool on_device() const {
    return (device_->capabilities() & device::kCooperative) == 0;
  }
  [[nodiscard]] bool on_host_memory() const {
    return (device_->capabilities() & device::kHostAccessible) != 0;
  }
  [[nodiscard]] int rank() const { return membership_.rank(); }
  [[nodiscard]] int n_ranks() const { return membership_.n_ranks(); }
  [[nodiscard]] const topology::Topology& topology() const { return membership_.topology(); }
  // Defined in measure.cc.
  Status measure();
  Status open_tuning();
  Status exchange_tactics();
  Status exchange_knowledge();
  void keep_learnt();
  Status measure_calls(std::vector<topology::Measurement>& mine);
  Result<Duration> time_calls(exec::Executor& executor, exec::Program& program, exec::Call call);
  // Defined in tune_calls.cc.
  [[nodiscard]] tune::Limits limits() const;
  // Defined in diagnosis.cc.
  void dump_failure();
  // Defined in launch.cc.
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
  Verdict& verdict_;  // owned by Membership
  Fabric& fabric_;
  Chores& chores_;
  std::atomic<int64_t> timeout_ms_;
  RedOps red_ops_;
  device::Device* device_ = nullptr;  // owned by the fabric
  std::unique_ptr<exec::Executor> executor_;
  exec::Executor* measuring_ = nullptr;  // a second executor during init; set under
                                         // Engine::exclusively

  // Guards launching: the members below, and the caller's side of `executor_` and `fabric_`.
  std::mutex launch_mutex_;
  std::unique_ptr<device::Stream> own_stream_;  // for calls without a stream
  std::unique_ptr<UserStreams> user_streams_;
  std::unique_ptr<Programs> programs_;
  std::unique_ptr<Tuning> tuning_;           // null: tuning is not possible
  std::unique_ptr<TuningFile> tuning_file_;  // null: HETCCL_TUNE is off
  Tactics tactics_;                          // the tactics that the libraries of all clusters
                                             // accept
  /// Memory that the user has registered.
  struct UserRegistration {
    void* by_library = nullptr;  // null: the library has not registered it
    exec::RegisteredMemory::Hold hold;
  };
  std::map<uintptr_t, UserRegistration> registrations_;  // by handle
  uintptr_t last_registration_ = 0;
  uint64_t sequence_ = 0;
  Statistics statistics_;

  exec::Recorder recorder_, message_recorder_{256};
  std::unique_ptr<exec::Tracer> tracer_;  // null: HETCCL_TRACE is not set
};

}  // namespace hetccl::comm
