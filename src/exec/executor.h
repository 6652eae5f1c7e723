// The one interpreter of plans, for one communicator: `launch` enqueues a collective's device work
// on the calling thread; the engine then moves its messages by `poll`.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "ccl/ccl.h"
#include "device/device.h"
#include "exec/departures.h"
#include "exec/engine.h"
#include "exec/fault.h"
#include "exec/operation.h"
#include "exec/recorder.h"
#include "exec/rotation.h"
#include "exec/tracer.h"
#include "exec/window.h"
#include "plan/plan.h"
#include "transport/transport.h"

namespace hetccl::exec {

struct ExecutorOptions {
  device::Device* device = nullptr;
  ccl::Communicator* ccl = nullptr;  ///< of this rank's cluster
  uint64_t communicator = 0;
  int n_ranks = 1;
  Recorder* recorder = nullptr;  ///< may be null
  Tracer* tracer = nullptr;      ///< may be null
  /// Of the ends of direct calls on users' streams; null: each is told at once.
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
};

/// How an executor reaches another rank.
struct Peer {
  int rank = -1;
  transport::Channel* channel = nullptr;  ///< null while it is being made: messages wait
  bool crosses = true;                    ///< into another cluster
  Window* window = nullptr;  ///< what this rank's device shares with it, or null; outlives all use
};

/// `launch` by one thread at a time; `poll` by the engine; the rest thread-safe.
class Executor : public Driven {
 public:
  static constexpr size_t kMaxInFlight = 1024;
  static constexpr uint32_t kMaxSlices = 64;

  static Result<std::unique_ptr<Executor>> create(ExecutorOptions options);
  ~Executor() override;

  /// Before the first program is launched that exchanges messages with that rank, and again once
  /// its channel is made. Call where nobody drives (Engine::exclusively).
  void connect(const Peer& peer);

  /// Enqueues `call` on `user`. The returned number is for `done`. `program` must outlive the
  /// operation. Call only while not `full`. After an error, what was enqueued so far is an
  /// operation in flight that `abort` ends.
  Result<uint64_t> launch(const Program& program, const plan::Choice& choice, const Call& call,
                          device::Stream& user);
  /// Begins a direct all-reduce whose caller will wait, while `idle`: true where it is complete on
  /// return, unknown to this executor; else `launch` it, as begun.
  Result<bool> all_reduce_at_once(const Program& program, const Call& call, device::Stream& user);
  /// Has a stream that records a graph take up the `program` of one cluster, which then runs
  /// whenever the graph does, unknown to this executor.
  Status capture(const Program& program, const Call& call, device::Stream& user);
  [[nodiscard]] bool full() const;
  [[nodiscard]] bool done(uint64_t number) const {
    return retired_.load(std::memory_order_acquire) > number;
  }
  [[nodiscard]] bool idle() const { return !active(); }

  /// Ends everything in flight, what is being launched included: no user memory is touched once
  /// `idle`. Streams are let go once the vendor's abort has begun, by `poll`. Call where nobody
  /// drives (Engine::exclusively). Later launches end at once.
  void abort();
  /// Payload bytes sent to other clusters and completed.
  [[nodiscard]] uint64_t bytes_sent() const { return bytes_sent_.load(std::memory_order_relaxed); }

  /// The oldest call in flight and where it stands: "all_reduce #3 (10 float32, sum): slice 2 of
  /// 12, step 4 (recv from rank 1)"; "" when idle. Call where nobody drives, before `abort`.
  [[nodiscard]] std::string standing();

  /// What a trace calls its tracks.
  [[nodiscard]] std::map<uint16_t, std::string> tracks() const;

  bool poll(TimePoint now) override;
  [[nodiscard]] bool active() const override {
    return launched_.load(std::memory_order_acquire) != retired_.load(std::memory_order_acquire);
  }
  /// Marks have time.
  [[nodiscard]] bool urgent() const override { return unmarked_.load() > 0; }
  [[nodiscard]] ShmSource* shm_source() override { return options_.ccl->shm_source(); }
  [[nodiscard]] bool silent() const override;

 private:
  // A place in a lane's list of messages, over all operations.
  struct Cursor {
    uint64_t operation = 0;
    size_t entry = 0;
  };
  // One direction of one channel: walks the messages of all operations in order.
  struct Lane {
    Lane(const Peer& to, bool sends) : peer(to.rank), crosses(to.crosses), send(sends) {
      use(to.channel);
    }
    // Messages that came before, as a probe's, are not this lane's.
    void use(transport::Channel* made) {
      channel = made;
      if (made != nullptr) completed = send ? made->sends_completed() : made->recvs_completed();
    }
    int peer = -1;
    transport::Channel* channel = nullptr;
    bool crosses = true;
    bool send = false;
    Cursor post, complete;   // the next to post, the next to complete
    uint64_t completed = 0;  // of the channel's counter
  };
  // Of a rank that shares a window.
  struct Shared {
    int peer = -1;
    Window* window = nullptr;
    Cursor reading;         // the next message that this rank's device is to read
    bool released = false;  // its waits for room, after an abort
  };
  // The first marked operation past its deadline, as it was last seen, and since when.
  struct Overdue {
    uint64_t number = 0;
    bool settled = false;
    TimePoint since{};
  };
  // Where a launch enqueues: on this executor's own streams, or all on the user's.
  struct Streams {
    device::Stream *ccl, *work, *out, *in;
    bool one;
  };
  // Events of one step of the program being launched, by slot.
  using Slots = std::vector<std::unique_ptr<device::Event>>;

  explicit Executor(ExecutorOptions options);
  Status open();

  // launch.cc
  void note_launch(const Call& call, uint64_t slice_elements, uint32_t slices);
  Status take_buffers(Operation& op, bool one);
  Status enqueue(Operation& op, uint32_t depth, device::Stream& user, const Streams& streams);
  Status enqueue_direct(Operation& op, device::Stream& user);
  [[nodiscard]] Streams streams_for(const Operation& op, device::Stream& user) const;
  Status enqueue_issue(Operation& op, plan::Issue issue, const Streams& streams);
  Status enqueue_wire(Operation& op, plan::Issue issue, const Streams& streams);
  Status enqueue_copy_out(Operation& op, plan::Issue issue, device::Stream& stream);
  Status leave_in_place(Operation& op, plan::Issue issue, const Streams& streams);
  Status take_places(Operation& op, plan::Issue issue, device::Stream& stream);
  Result<std::byte*> take_place(Operation& op, plan::Issue issue, device::Stream& stream);
  Status say_what_was_read(Operation& op, plan::Issue issue, device::Stream& stream);
  static std::byte* place_of(Operation& op, plan::Issue issue);
  void find_what_stays(Operation& op, uint32_t depth, bool one) const;
  Status enqueue_copy_in(Operation& op, plan::Issue issue, const Streams& streams);
  void find_windows(const Program& program);
  Status enqueue_waits(Operation& op, plan::Issue issue, device::Stream& stream, bool one);
  Status enqueue_step(Operation& op, plan::Issue issue, device::Stream& stream);
  Status enqueue_shards(Operation& op, plan::Issue issue, device::Stream& stream);
  Status enqueue_reduce(Operation& op, plan::Issue issue, device::Stream& stream);
  Status join(Operation& op, device::Stream& user, const Streams& streams);
  Status join_streams(device::Stream& user);
  void give_up(Operation& op, device::Stream& user);
  Result<device::Event*> event_of(uint16_t step, uint32_t slot);
  Result<Operation*> take();

  /// Whether its message goes through this rank's streams: the transport cannot reach the device's
  /// memory, or both ends share some.
  [[nodiscard]] bool on_streams(const Operation& op, uint16_t step) const {
    return staged_ || op.window_of(step) != nullptr;
  }

  // executor.cc
  bool poll_lane(Lane& lane);
  bool post(Lane& lane);
  bool complete(Lane& lane);
  [[nodiscard]] static const std::vector<plan::Issue>* messages_of(const Operation& op, int peer,
                                                                   bool sends);
  // The message where `cursor` stands, which first skips what is exhausted; null when there is none
  // yet.
  const plan::Issue* entry_at(const Lane& lane, Cursor& cursor);
  [[nodiscard]] bool ready(Operation& op, plan::Issue issue) const;
  void retire(TimePoint now);
  void note_reads(Shared& shared);
  bool abandoned();
  void release_streams();
  void release_windows(TimePoint now);
  [[nodiscard]] uint16_t track_of(const Lane& lane) const;
  void note_starts(TimePoint now);
  void note_end(uint64_t number, TimePoint now);
  void check(TimePoint now);
  bool may_have_ended(uint64_t number, TimePoint now);
  bool check_library();
  bool check_departures(TimePoint now);
  [[nodiscard]] bool has_begun(uint64_t number);
  [[nodiscard]] std::string place_of(uint64_t number);
  Fault fault_of(const Lane& lane);
  void stall(Code code, const Call& call, const std::string& how, int departed);
  void fault(const Fault& fault);
  [[nodiscard]] Operation& at(uint64_t number) { return *ring_[number % kMaxInFlight]; }

  ExecutorOptions options_;
  bool staged_ = false;  // transports cannot reach device memory
  bool kernels_ = true;  // the device reduces by itself
  std::unique_ptr<device::Stream> ccl_stream_, work_stream_, out_stream_, in_stream_;
  std::unique_ptr<EndMarks> marks_;  // null: there are none
  std::unique_ptr<Rotation> rotation_;
  std::unique_ptr<device::Event> started_, joined_;
  std::vector<Slots> events_;  // by step; shared by all programs
  std::vector<ccl::Shard> shards_;
  std::vector<Window*> lane_windows_;  // of the program being launched
  std::vector<Lane> lanes_;
  std::vector<Shared> windows_;  // few

  std::vector<std::unique_ptr<Operation>> operations_;  // owns them
  std::mutex free_mutex_;
  std::vector<Operation*> free_;
  std::vector<Operation*> ring_;  // by number % kMaxInFlight
  std::atomic<uint64_t> launched_{0}, retired_{0};
  std::atomic<uint64_t> unmarked_{0};  // of those in flight
  std::atomic<uint64_t> bytes_sent_{0};
  TimePoint polled_at_{};
  TimePoint next_deadline_check_{};
  uint64_t noted_ = 0;  // operations whose start was noted; engine only
  // The oldest operation, when it misses a rank that has left, and since when it was seen so.
  std::optional<Call> abandoned_;
  TimePoint abandoned_since_{};
  std::optional<Overdue> overdue_;
  bool faulted_ = false;  // engine only
  std::atomic<bool> aborted_{false};
  bool released_ = false;                // after an abort: its streams' waits
  std::optional<TimePoint> abort_seen_;  // engine only
};

}  // namespace hetccl::exec
