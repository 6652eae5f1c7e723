// One rank of one communicator: the only place where topology, plans, adaptors and the executor
// come together.
//
// Its parts have one reason to change each: Verdict (why it failed), Channels (whom it is connected
// to), Pairs (whose messages its cluster's library carries), Programs (which plan a call runs),
// UserStreams (where). What opens, launches, measures, splits and diagnoses stays here, in a file
// each.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/cancel.h"
#include "bootstrap/bootstrap.h"
#include "comm/arguments.h"
#include "comm/channels.h"
#include "comm/chores.h"
#include "comm/introduction.h"
#include "comm/pairs.h"
#include "comm/programs.h"
#include "comm/red_ops.h"
#include "comm/runtime.h"
#include "comm/tuning.h"
#include "comm/tuning_file.h"
#include "comm/user_streams.h"
#include "comm/verdict.h"
#include "exec/executor.h"
#include "topology/topology.h"
#include "tune/probes.h"

namespace hetccl::comm {

struct CommunicatorOptions {
  int rank = 0;
  int n_ranks = 1;
  std::string device;           ///< "host", "cuda:1", "cuda"; "" is the host
  std::string cluster;          ///< label; "" takes the configuration's
  std::string host_id;          ///< "" takes the configuration's, or probes
  int64_t timeout_ms = 0;       ///< of one collective; 0 takes the configuration's
  int64_t init_timeout_ms = 0;  ///< for all ranks to come; 0 takes the configuration's
  int64_t init_limit_ms = 0;    ///< at most this; 0: no limit
  bool blocking = true;         ///< false: create, split and finalize go on in the background
  /// As the settings of these names; none takes the configuration's.
  std::optional<std::string> wire{}, wire_gather{};
  std::optional<bool> wire_inside{};
};

/// The color of a rank that joins no part of a split.
inline constexpr int kNoColor = -1;

struct Statistics {
  uint64_t operations = 0;
  uint64_t cross_bytes_sent = 0;
  uint64_t least_cross_bytes = 0;
  uint64_t plans = 0;
};

/// Thread-safe; but ranks must agree on the order of their collectives.
class Communicator : public std::enable_shared_from_this<Communicator> {
 public:
  /// Collective over all ranks of `id`; blocks within the init timeout, unless
  /// `options.blocking` is false: then it is `in_progress` until it is ready or has failed.
  static Result<std::shared_ptr<Communicator>> create(Runtime& runtime,
                                                      const bootstrap::UniqueId& id,
                                                      CommunicatorOptions options);
  /// Aborts what is still in flight, being set up included.
  ~Communicator();
  /// Keeps `lease` until it has gone itself. Once, before others use it.
  void hold(std::shared_ptr<const void> lease) { lease_ = std::move(lease); }
  /// Collective: the ranks of equal `color` form a new communicator, ordered by `key`, then by
  /// their rank here. Null for kNoColor. `options` but its rank and size is the new one's; null
  /// takes this one's.
  Result<std::shared_ptr<Communicator>> split(int color, int key,
                                              const CommunicatorOptions* options);

  /// Whether it can be called: what `start` would find wrong with it.
  Status check(const CollectiveArguments& arguments);
  Status check(std::span<const exec::Message> messages);
  /// What was started, for `complete`.
  using Ticket = exec::Ticket;
  /// How a call is made.
  struct Start {
    void* stream = nullptr;  ///< the device's own
    int64_t timeout_ms = 0;  ///< its deadline; 0: the communicator's
    bool waits = true;       ///< without a stream its caller will do nothing but wait for it
  };
  /// Enqueues on the stream; without one the collective starts at once.
  Result<Ticket> start(const CollectiveArguments& arguments, const Start& how);
  /// The same for messages that go at the same time. Connecting to their other ends goes on in the
  /// background, until those have messages for this rank.
  Result<Ticket> start(std::span<const exec::Message> messages, const Start& how);
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

  /// Waits for everything in flight, within its deadlines, and says goodbye to the other ranks.
  /// Ends at once what is still being set up.
  Status finish() { return finish_by(TimePoint::max()); }
  /// `finish`, in the background unless `blocking`.
  Status finalize();
  /// Whether a create or finalize goes on in the background.
  [[nodiscard]] bool in_progress() const;
  /// For the end of the process: `finish` if work is complete by `deadline`, else `abort`.
  void shut_down(TimePoint deadline);
  /// Fails the communicator on every rank, `why` being told to the others.
  void abort(const std::string& why);
  /// The first failure, naming the culprit, as all ranks know it; ok while there is none. Waits for
  /// the ranks' agreement on it, at most the liveness deadline, when this rank has seen one first.
  [[nodiscard]] Status failure();

  /// -1 and 0 while a split has not found them.
  [[nodiscard]] int rank() const { return rank_.load(std::memory_order_relaxed); }
  [[nodiscard]] int n_ranks() const { return n_ranks_.load(std::memory_order_relaxed); }
  [[nodiscard]] Runtime& runtime() { return runtime_; }
  [[nodiscard]] bool blocking() const { return options_.blocking; }
  void set_timeout(int64_t timeout_ms) { timeout_ms_.store(timeout_ms); }
  /// Ok once everything is known of this communicator: InvalidUsage while it is being set up, the
  /// reason when it could not be.
  [[nodiscard]] Status known();
  // The rest only where `known` is ok.
  [[nodiscard]] const std::string& topology_json();
  /// The state of tuning, as JSON: see hetcclCommGetTuning.
  [[nodiscard]] std::string tuning_json();
  /// The program has finished a step (HETCCL_TUNE=step).
  void step();
  /// From the next call on, calls like `key` use `setting` on this rank. Every rank does so between
  /// the same calls. JSON; InvalidArgument where it is none of this communicator's.
  Status set_tuning(std::string_view json);
  /// The settings to search for such a call, as JSON, its default first.
  Result<std::string> tuning_space(const Signature& signature);
  [[nodiscard]] Statistics statistics();
  /// The last operations, what is known of them and the failure, as JSON; at any time.
  [[nodiscard]] std::string dump();

 private:
  enum class Phase { Opening, Ready, Finalizing, Closed };
  /// A rank's seat in a communicator to come.
  struct Seat {
    bootstrap::UniqueId id{};
    int rank = 0;
    int n_ranks = 0;  ///< 0: in none
  };

  static Result<std::shared_ptr<Communicator>> make(Runtime& runtime, CommunicatorOptions options);
  Communicator(Runtime& runtime, CommunicatorOptions options, std::unique_ptr<Cancel> cancel);
  // init.cc
  Status open(const bootstrap::UniqueId& id);
  Status try_open(const bootstrap::UniqueId& id);
  Status open_parts(const bootstrap::UniqueId& id);
  void warn_of_layout() const;
  Status join(const bootstrap::UniqueId& id);
  Status exchange_cards();
  void share_cores();
  Status open_cluster();
  exec::ExecutorOptions executor_options();
  std::function<void()> on_published();
  Status open_executor();
  Status open_pairs();
  // measure.cc
  Status measure();
  Status measure(const tune::LinkToMeasure& link, std::vector<topology::Measurement>& mine);
  Status open_tuning();
  Status exchange_tactics();
  Result<std::vector<tune::Learnt>> exchange_knowledge();
  void keep_learnt();
  // tune_calls.cc
  [[nodiscard]] tune::Limits limits() const;
  Status measure_calls(std::vector<topology::Measurement>& mine);
  Result<Duration> time_calls(exec::Executor& executor, exec::Program& program, exec::Call call);
  Result<Duration> time_call(exec::Executor& executor, exec::Program& program, exec::Call call);
  Status close_unopened(Status cause);
  [[nodiscard]] int64_t init_left_ms() const;
  [[nodiscard]] WaitLimit init_limit() const { return {init_left_ms(), cancel_.get()}; }
  // diagnosis.cc
  void tell_failure(Code code, const std::string& cause);
  void dump_failure();
  void write_trace();
  // split.cc
  Result<Seat> find_seat(int color, int key, int64_t timeout_ms);
  Status take(Result<Seat> seat);
  [[nodiscard]] const topology::Topology& topology() const { return introduction_->topology; }

  // One call: a collective or messages.
  struct Work {
    const CollectiveArguments* collective = nullptr;
    std::span<const exec::Message> messages{};
    Start how{};
    bool captured = false;  ///< it becomes part of a graph
    [[nodiscard]] std::string text() const;
  };
  struct Times {
    TimePoint now, deadline;
  };
  // launch.cc
  Status check_any_source(std::span<const exec::Message> messages) const;
  void reach(PlannedProgram& program);
  Result<device::Stream*> stream_for(void* native);
  Result<Ticket> launch(Work work);
  Result<bool> is_captured(const Work& work, std::unique_lock<std::mutex>& lock,
                           TimePoint deadline);
  Status await_library(std::span<const exec::Message> messages, std::unique_lock<std::mutex>& lock,
                       TimePoint deadline);
  Status await_library(int peer, exec::Route& route, TimePoint deadline);
  [[nodiscard]] bool is_device_work_alone(const Signature& signature) const;
  void notify();
  Status fail_launch(const Status& why, const Work& work);
  template <typename Step>
  auto or_end(const Step& step);
  Result<Ticket> try_enqueue(const Work& work, const Times& times);
  Result<Ticket> enqueue(const Work& work, const Times& times);
  Result<Ticket> enqueue_collective(const Work& work, const Times& times);
  Tuning::Use find_setting(const Work& work, const Signature& signature, uint64_t block,
                           TimePoint now);
  [[nodiscard]] bool is_small(const PlannedProgram& program, const Signature& signature) const;
  Status meet(std::span<const exec::Message> messages);
  Result<Ticket> enqueue_messages(const Work& work, const Times& times);
  Status wait_for_room(const Work& work, std::unique_lock<std::mutex>& lock, TimePoint deadline);
  // communicator.cc
  // Whether streams advance by themselves.
  [[nodiscard]] bool on_device() const {
    return (device_->capabilities() & device::kCooperative) == 0;
  }
  bool wait_until_idle() {
    return verdict_.drive_until([this] { return executor_->idle(); });
  }
  void dismantle(bool ended);
  /// `finish`; what goes on in a vendor's library is awaited until `deadline`.
  Status finish_by(TimePoint deadline);
  Status drain(TimePoint deadline);
  bool close();
  [[nodiscard]] Status check_ready();
  // failure.cc
  void on_fault(const exec::Fault& fault);
  void report_own(int culprit, const Status& status);
  void report_first(const Status& failure);
  // Ends the communicator because of what was thrown in the background.
  void on_exception(const Status& why);
  void on_failure(const bootstrap::Failure& failure);
  void on_left(int rank, uint64_t called);
  [[nodiscard]] bootstrap::Position position(uint64_t sequence) const;
  // Fails the communicator for that cause: ends everything in flight.
  void stop(Status status);

  std::shared_ptr<const void> lease_;  ///< the first: it goes last
  Runtime& runtime_;
  const CommunicatorOptions options_;
  const Config config_;  // the process's settings, but for what the options say
  std::atomic<int> rank_, n_ranks_;
  Log log_;
  const std::unique_ptr<Cancel> cancel_;  ///< ends being set up
  std::atomic<Phase> phase_{Phase::Opening};
  TimePoint init_deadline_{};
  std::atomic<int64_t> timeout_ms_{0};
  RedOps red_ops_;
  Verdict verdict_;
  device::Device* device_ = nullptr;
  std::unique_ptr<bootstrap::Session> session_;
  std::shared_ptr<const Introduction> introduction_;
  std::vector<topology::Measurement> measured_;  // by all ranks
  std::once_flag topology_text_made_;
  std::string topology_text_;
  std::unique_ptr<ccl::Communicator> ccl_;
  std::unique_ptr<Channels> channels_;
  std::unique_ptr<exec::Executor> executor_;
  exec::Executor* measuring_ = nullptr;  // another, during init; where nobody drives
  std::unique_ptr<Pairs> pairs_;

  // Guards launching: what follows, and the caller's side of `executor_`, `channels_` and `pairs_`.
  std::mutex launch_mutex_;
  std::unique_ptr<device::Stream> own_stream_;  // for calls without a stream
  std::unique_ptr<UserStreams> user_streams_;
  std::unique_ptr<Programs> programs_;
  std::unique_ptr<Tuning> tuning_;           // null: nothing can be tuned
  std::unique_ptr<TuningFile> tuning_file_;  // null: without HETCCL_TUNE
  Tactics tactics_;                          // that the libraries of all clusters take
  uint64_t sequence_ = 0;
  Statistics statistics_;

  const uint64_t number_;  ///< of this communicator in its process
  exec::Recorder recorder_, message_recorder_{256};
  std::unique_ptr<exec::Tracer> tracer_;  // null without HETCCL_TRACE
  exec::Departures departures_;

  // The last: its thread uses all of the above.
  Chores chores_{[this](const Status& why) { on_exception(why); }};
};

}  // namespace hetccl::comm
