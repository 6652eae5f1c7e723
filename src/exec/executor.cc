// The engine's side of an executor: progress, retirement, abort. launch.cc is the caller's side.
#include "exec/executor.h"

#include "base/clock.h"

namespace hetccl::exec {

Executor::Executor(ExecutorOptions options)
    : options_(std::move(options)),
      host_memory_((options_.device->capabilities() & device::kHostAccessible) != 0),
      wire_({options_.communicator, options_.ccl, options_.recorder, options_.tracer}) {}

Executor::~Executor() = default;

Result<std::unique_ptr<Executor>> Executor::create(ExecutorOptions options) {
  std::unique_ptr<Executor> executor(new Executor(std::move(options)));
  HETCCL_TRY(executor->open());
  return executor;
}

Status Executor::open() {
  auto& device = *options_.device;
  using enum lower::QueueKind;
  const bool copies = !host_memory_ || options_.windows;
  auto interpreter =
      copies ? Interpreter::create(device, options_.ccl, options_.n_ranks, {Ccl, Work, Out, In})
             : Interpreter::create(device, options_.ccl, options_.n_ranks, {Ccl, Work});
  HETCCL_ASSIGN(interpreter_, std::move(interpreter));
  HETCCL_ASSIGN(rotation_, Rotation::create(device));
  if (options_.settler != nullptr && !host_memory_) {
    HETCCL_ASSIGN(marks_, EndMarks::create(device, *options_.settler));
  }
  const WatchOptions watch{options_.ccl, options_.library, marks_.get(), options_.departures,
                           options_.departure_grace};
  watch_ = std::make_unique<Watch>(watch, in_flight_, wire_);
  return {};
}

void Executor::connect(const Peer& peer) {
  if (aborted_ && peer.channel != nullptr) peer.channel->close();
  const bool copies = !host_memory_ || options_.windows;  // as `open` has made streams for it
  if (peer.window != nullptr && !copies && !faulted_) {
    fault({error(Code::InternalError,
                 "a window with rank %d, and no streams that copy into it. This is a defect of "
                 "hetccl: please report it",
                 peer.rank),
           -1,
           {}});
  }
  wire_.connect(peer, {&in_flight_, &in_flight_});
}

// Others' streams read windows, and ring nobody.
bool Executor::silent() const {
  return options_.ccl->shm_source() == nullptr || wire_.has_unread();
}

bool Executor::poll(TimePoint now) {
  const uint64_t before = in_flight_.oldest();
  bool moved = false;
  if (marks_ != nullptr) marks_->look(now);
  if (aborted_) {
    release_streams();
    if (released_) wire_.release_windows(now);
  } else {
    moved = wire_.poll(now);
    if (!wire_.status().ok() && !faulted_) fault({wire_.status(), -1, {}});
    if (!moved && !faulted_) {
      if (auto found = watch_->check(now)) fault(std::move(*found));
    }
  }
  observe(before, now);
  retire(now);
  // After that: what a retired operation has read, its sender must learn while somebody polls.
  if (!aborted_) moved |= wire_.exchange_credit();
  const bool retired = in_flight_.oldest() != before;
  if (retired && !aborted_ && !faulted_) {
    Status library = watch_->library_status();
    if (!library.ok()) fault({std::move(library), -1, {}});
  }
  return moved || retired;
}

void Executor::observe(uint64_t before, TimePoint now) {
  if (options_.recorder != nullptr) note_starts(now);
  if (options_.tracer == nullptr) return;
  const uint64_t end = in_flight_.end();
  for (uint64_t n = before; n < end; ++n) options_.tracer->look(n, in_flight_.at(n), now);
}

void Executor::note_starts(TimePoint now) {
  const uint64_t end = in_flight_.end();
  noted_ = std::max(noted_, in_flight_.oldest());  // what is retired is another's memory
  for (; noted_ < end; ++noted_) {
    Operation& op = in_flight_.at(noted_);
    if (!op.tells_start()) continue;
    if (!op.started().reached(1)) return;
    op.started_at = now;
    options_.recorder->start(op.call.sequence, now);
  }
}

// The start is the launch where the caller waits, and where nobody looked between start and end.
// A call may have been launched, and have ended, since the poll that sees its end began.
void Executor::tell_time(const Operation& op, TimePoint now) {
  const bool from_launch = op.call.awaited || op.started_at == TimePoint{};
  const TimePoint start = from_launch ? op.call.launched : op.started_at;
  const TimePoint end = start <= now ? now : steady_clock().now();
  options_.on_timed(op.call.sequence, end - start, end);
}

void Executor::note_end(uint64_t number, TimePoint now) {
  const bool failed = aborted_ || faulted_;
  options_.recorder->end(in_flight_.at(number).call.sequence,
                         failed ? Record::State::Failed : Record::State::Completed, now);
}

bool Executor::may_retire(Operation& op) {
  if (!op.is_finished()) return false;
  if (aborted_) return true;
  // Until the abort that is to come, messages and calls may still be under way.
  const bool lost = op.marks != nullptr && marks_->failed();
  return !is_abandoned() && !lost && !op.given_up.load(std::memory_order_acquire) && op.ended();
}

void Executor::retire(TimePoint now) {
  const uint64_t end = in_flight_.end();
  for (uint64_t n = in_flight_.oldest(); n < end; ++n) {
    Operation& op = in_flight_.at(n);
    if (!may_retire(op)) return;
    if (options_.tracer != nullptr) options_.tracer->retire(n, op, now);
    if (options_.recorder != nullptr) note_end(n, now);
    if (op.call.timed && options_.on_timed && !aborted_ && !faulted_) tell_time(op, now);
    wire_.acknowledge_reads();
    if (op.marks == nullptr) unmarked_.fetch_sub(1);
    if (op.turn.left != nullptr && !aborted_) Rotation::leave(op.turn);
    operations_.give_back(in_flight_.retire());
  }
}

// A rank that has aborted may have overwritten data that this rank's device has not read yet.
bool Executor::is_abandoned() {
  const std::optional<Fault> abandoned = wire_.find_abandoned();
  if (abandoned && !faulted_) fault(*abandoned);
  return abandoned.has_value();
}

void Executor::fault(Fault found) {
  faulted_ = true;
  const Fault told = watch_->explain(std::move(found));
  if (options_.on_fault) options_.on_fault(told);
}

void Executor::abort() {
  if (aborted_.exchange(true, std::memory_order_seq_cst)) return;
  wire_.close();
  options_.ccl->abort();
  wire_.abandon_windows();
  release_streams();
}

// Released streams continue with whatever is in memory. Another rank could take that for a vendor
// result, so streams are released only after the vendor's abort has begun.
void Executor::release_streams() {
  if (released_ || !options_.ccl->abort_has_begun()) return;
  released_ = true;
  const uint64_t end = in_flight_.end();
  for (uint64_t n = in_flight_.oldest(); n < end; ++n) in_flight_.at(n).release_waits();
  rotation_->release_waits();
}

std::map<uint16_t, std::string> Executor::tracks() const {
  std::map<uint16_t, std::string> names = Tracer::stream_tracks();
  wire_.name_tracks(names);
  return names;
}

}  // namespace hetccl::exec
