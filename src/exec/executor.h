// Runs a communicator's collectives: `launch` lowers a plan for the call, enqueues the streams'
// instructions on the calling thread, and leaves the lanes' to the engine, which calls `poll`.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ccl/ccl.h"
#include "device/device.h"
#include "exec/in_flight.h"
#include "exec/interpreter.h"
#include "exec/pool.h"
#include "exec/recorder.h"
#include "exec/rotation.h"
#include "exec/tracer.h"
#include "exec/watch.h"
#include "exec/wire.h"
#include "progress/engine.h"

namespace hetccl::exec {

struct ExecutorOptions {
  device::Device* device = nullptr;
  ccl::Communicator* ccl = nullptr;  ///< of this rank's cluster
  std::string library;               ///< its name
  uint64_t communicator = 0;
  int n_ranks = 1;
  int local_rank = 0;            ///< in its cluster
  Recorder* recorder = nullptr;  ///< may be null
  Tracer* tracer = nullptr;      ///< may be null
  /// Finds out when calls that are one library call have ended; null: each writes a flag.
  Settler* settler = nullptr;
  const Departures* departures = nullptr;  ///< may be null
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
/// `connect`, `abort`, `standing` and `tracks` where nobody drives (Engine::exclusively); the rest
/// is thread-safe.
class Executor : public progress::Driven {
 public:
  static constexpr size_t kMaxInFlight = InFlight::kMost;

  static Result<std::unique_ptr<Executor>> create(ExecutorOptions options);
  ~Executor() override;

  /// Before the first program is launched that exchanges messages with that rank, and again once
  /// its channel is made. Call where nobody drives (Engine::exclusively).
  void connect(const Peer& peer);

  /// Enqueues `call` on `user`. The returned number is for `done`. `program` is this executor's
  /// alone and must outlive the operation. Call only while not `full`. After an error, what was
  /// enqueued so far is an operation in flight that `abort` ends.
  Result<uint64_t> launch(Program& program, const plan::Choice& choice, const Call& call,
                          device::Stream& user);
  /// Begins an all-reduce that is one library call and whose caller will wait, while `idle`: true
  /// where it is complete on return, unknown to this executor; else `launch` it, as begun.
  Result<bool> all_reduce_at_once(const Program& program, const Call& call, device::Stream& user);
  /// Has a stream that records a graph take up the `program` of one cluster, which then runs
  /// whenever the graph does, unknown to this executor.
  Status capture(Program& program, const Call& call, device::Stream& user);
  [[nodiscard]] bool full() const { return in_flight_.full(); }
  [[nodiscard]] bool done(uint64_t number) const { return in_flight_.oldest() > number; }
  [[nodiscard]] bool idle() const { return !active(); }

  /// Ends everything in flight, what is being launched included: no user memory is touched once
  /// `idle`. Streams are released once the vendor's abort has begun, by `poll`. Call where nobody
  /// drives (Engine::exclusively). Later launches end at once.
  void abort();
  /// Payload bytes sent to other clusters and completed.
  [[nodiscard]] uint64_t bytes_sent() const { return wire_.bytes_sent(); }

  /// The oldest call in flight and where it stands: "all_reduce #3 (10 float32, sum): slice 2 of
  /// 12, step 4 (recv from rank 1)"; "" when idle. Call where nobody drives, before `abort`.
  [[nodiscard]] std::string standing() { return watch_->standing(); }

  /// What a trace calls its tracks.
  [[nodiscard]] std::map<uint16_t, std::string> tracks() const;

  bool poll(TimePoint now) override;
  [[nodiscard]] bool active() const override { return !in_flight_.empty(); }
  /// Marks have time.
  [[nodiscard]] bool urgent() const override { return unmarked_.load() > 0; }
  [[nodiscard]] ShmSource* shm_source() override { return options_.ccl->shm_source(); }
  [[nodiscard]] bool silent() const override;

 private:
  explicit Executor(ExecutorOptions options);
  Status open();
  Result<Program::Lowered> lower_for(Program& program, const plan::Choice& choice,
                                     const Call& call);
  void bind(Program& program);
  void note_launch(const Call& call, uint64_t slice_elements, uint32_t slices);
  Status prepare(Operation& op, const Program::Lowered& lowered, const Call& call);
  Status take_buffers(Operation& op);
  void configure_library(const Call& call);
  void choose_end(Operation& op);
  Status finish(Operation& op, device::Stream& user);
  void retire(TimePoint now);
  bool may_retire(Operation& op);
  void note_starts(TimePoint now);
  void note_end(uint64_t number, TimePoint now);
  void tell_time(const Operation& op, TimePoint now);
  void observe(uint64_t before, TimePoint now);
  bool is_abandoned();
  void release_streams();
  void fault(Fault fault);

  ExecutorOptions options_;
  const bool host_memory_;  ///< hosts reach the device's memory
  Pool<Operation> operations_;
  InFlight in_flight_;
  Wire wire_;
  std::unique_ptr<Interpreter> interpreter_;
  std::unique_ptr<EndMarks> marks_;  ///< null: there are none
  std::unique_ptr<Watch> watch_;
  std::unique_ptr<Rotation> rotation_;
  std::vector<Window*> windows_;       ///< by lane of the program being launched
  std::atomic<uint64_t> unmarked_{0};  ///< of those in flight
  uint64_t noted_ = 0;                 ///< operations whose start was noted; the engine's
  bool faulted_ = false;               ///< the engine's
  std::atomic<bool> aborted_{false};
  bool released_ = false;  ///< after an abort: its streams' waits
};

}  // namespace hetccl::exec
