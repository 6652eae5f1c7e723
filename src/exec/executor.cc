// The engine's half of an executor: progress, retirement, abort.
#include "exec/executor.h"

#include "base/clock.h"

namespace hetccl::exec {

Executor::Executor(ExecutorOptions options)
    : options_(std::move(options)),
      host_memory_((options_.device->capabilities() & device::kHostAccessible) != 0),
      collectives_(options_.recorder),
      messages_(options_.rank),
      wire_({options_.collectives, options_.messages, options_.ccl, options_.tracer}),
      group_(options_.rank) {}

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
  const bool alone =
      options_.topology == nullptr || options_.topology->has_device_alone(options_.rank);
  using enum Batch::Launches;
  batch_ = std::make_unique<Batch>(device, options_.launches_wait ? Block : alone ? Spin : Yield);
  const int n = options_.n_ranks;
  auto interpreter =
      copies ? Interpreter::create(device, *batch_, options_.ccl, n, {Ccl, Work, Out, In})
             : Interpreter::create(device, *batch_, options_.ccl, n, {Ccl, Work});
  HETCCL_ASSIGN(collectives_.interpreter, std::move(interpreter));
  HETCCL_ASSIGN(collectives_.rotation, Rotation::create(device));
  HETCCL_ASSIGN(forked_, device.create_event());
  HETCCL_ASSIGN(joined_, device.create_event());
  if (options_.topology != nullptr) {
    HETCCL_ASSIGN(auto own, make_ends({.rank = options_.rank, .direct = false}));
    meet(options_.rank, std::move(own));
  }
  if (options_.topology != nullptr && host_memory_) {
    HETCCL_ASSIGN(auto any, make_ends({.rank = kAnyRank}));
    meet(kAnyRank, std::move(any));
  }
  if (options_.settler != nullptr && !host_memory_) {
    HETCCL_ASSIGN(marks_, EndMarks::create(device, *options_.settler));
  }
  const WatchOptions watch{options_.ccl, options_.library, marks_.get(), options_.departures,
                           options_.departure_grace};
  watch_ = std::make_unique<Watch>(watch, collectives_.in_flight, messages_, wire_);
  return {};
}

void Executor::connect(const Peer& peer) {
  if (aborted_ && peer.channel != nullptr) peer.channel->close();
  if (peer.for_messages) {
    return wire_.connect(peer, {&messages_.of(peer.rank, true).in_flight,
                                &messages_.of(peer.rank, false).in_flight});
  }
  const bool copies = !host_memory_ || options_.windows;  // `open` has made streams for copies
  if (peer.window != nullptr && !copies && !faulted_) {
    fault({error(ErrorCode::InternalError,
                 "a window with rank %d, and no streams that copy into it. This is a defect of "
                 "hetccl: please report it",
                 peer.rank),
           -1,
           {}});
  }
  if (peer.registers) registers_ = true;
  wire_.connect(peer, {&collectives_.in_flight, &collectives_.in_flight});
}

// Returns whether an event may come without a wake-up: peers' streams read windows silently, and so
// do a device's streams that end a message.
bool Executor::silent() const {
  const bool wakes = (options_.device->capabilities() & device::kCooperative) != 0;
  return (!collectives_.in_flight.empty() && options_.ccl->shm_source() == nullptr) ||
         (messages_.calls.load() > 0 && !wakes) || wire_.has_unread();
}

void Executor::admit() {
  messages_.admit([this](Operation& op) {
    if (released_) op.release_waits();  // it was launched while the abort began
    if (op.message.peer == kAnyRank && !aborted_) wire_.receive_any(op);
  });
}

bool Executor::poll(TimePoint now) {
  admit();
  const uint64_t before = collectives_.in_flight.oldest();
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
  const bool retired = retire(now);
  // Do this last: while this end still polls, a sender must learn that retired operations have read
  // its data.
  if (!aborted_) moved |= wire_.exchange_credit();
  const bool any_collective = collectives_.in_flight.oldest() != before;
  if (any_collective && !aborted_ && !faulted_) {
    Status library = watch_->library_status();
    if (!library.ok()) fault({std::move(library), -1, {}});
  }
  return moved || retired;
}

void Executor::observe(uint64_t before, TimePoint now) {
  if (options_.recorder != nullptr) note_starts(now);
  if (options_.tracer == nullptr) return;
  InFlight& in_flight = collectives_.in_flight;
  const uint64_t end = in_flight.end();
  for (uint64_t n = before; n < end; ++n) options_.tracer->look(in_flight.at(n), now);
  messages_.for_each_in_flight([&](Operation& op) { options_.tracer->look(op, now); });
}

// Returns whether it has started. Ignores waits that an abort has released.
bool Executor::note_start(Operation& op, TimePoint now) const {
  if (op.started_at != TimePoint{}) return true;
  if (aborted_ || !op.started().reached(1)) return false;
  op.started_at = now;
  if (op.order->recorder != nullptr) op.order->recorder->start(op.recorded_as(), now);
  return true;
}

void Executor::note_starts(TimePoint now) {
  InFlight& in_flight = collectives_.in_flight;
  const uint64_t end = in_flight.end();
  noted_ = std::max(noted_, in_flight.oldest());  // retired operations may be reused
  for (; noted_ < end; ++noted_) {
    Operation& op = in_flight.at(noted_);
    if (op.tells_start() && !note_start(op, now)) return;
  }
}

// Reports the call's time. Its start is the launch if the caller waits, or if no poll came between
// start and end. A call may be launched, and end, after the poll that sees its end began; then the
// clock is read again.
void Executor::report_time(const Operation& op, TimePoint now) {
  const bool from_launch = op.call.awaited || op.started_at == TimePoint{};
  const TimePoint start = from_launch ? op.call.launched : op.started_at;
  const TimePoint end = start <= now ? now : options_.clock->now();
  options_.on_timed(op.call.sequence, end - start, end);
}

void Executor::note_end(Operation& op, TimePoint now) {
  const bool failed = aborted_ || faulted_;
  if (options_.tracer != nullptr) options_.tracer->retire(op, now);
  if (Recorder* const recorder = op.order->recorder) {
    const auto state = failed ? Record::State::Failed : Record::State::Completed;
    const bool unseen = op.by_library || op.message.peer == options_.rank;
    if (op.is_message() && unseen && !failed)
      recorder->move(op.posting, op.message.count * size_of(op.message.type));
    recorder->end(op.recorded_as(), state, now);
  }
  if (op.is_message()) return;
  if (op.call.timed && options_.on_timed && !failed) report_time(op, now);
  if (op.marks == nullptr)
    require(unmarked_.fetch_sub(1) > 0, "collectives that end without a mark have begun so");
}

bool Executor::may_retire(Operation& op) {
  if (!op.is_finished()) return false;
  if (aborted_) return true;
  // Until the coming abort, messages and calls may still be under way.
  const bool lost = op.marks != nullptr && marks_->failed();
  return !is_abandoned() && !lost && !op.given_up.load(std::memory_order_acquire) && op.ended() &&
         !has_failed_library(op);
}

bool Executor::retire(TimePoint now) {
  bool retired = retire(collectives_, now);
  if (messages_.calls.load() == 0) return retired;
  for (MessageOrder* order : messages_.all()) retired |= retire(*order, now);
  retired |= std::erase_if(messages_.from_any(), [&](Operation* op) {
               if (!may_retire(*op)) return false;
               note_end(*op, now);
               end(*op);
               return true;
             }) > 0;
  return retired;
}

bool Executor::retire(Order& order, TimePoint now) {
  bool retired = false;
  const uint64_t behind = order.in_flight.end();
  for (uint64_t n = order.in_flight.oldest(); n < behind; ++n) {
    Operation& op = order.in_flight.at(n);
    if (op.is_message()) note_start(op, now);  // the oldest; poll looks at no other start
    if (!may_retire(op)) break;
    note_end(op, now);
    wire_.acknowledge_reads();
    if (op.turn.left != nullptr && !aborted_) Rotation::leave(op.turn);
    order.in_flight.retire();
    end(op);
    retired = true;
  }
  return retired;
}

void Executor::end(Operation& op) {
  Operation& lead = *op.lead;
  op.holds.clear();
  if (&op != &lead) operations_.give_back(op);
  const auto left = lead.completion.left.fetch_sub(1, std::memory_order_acq_rel);
  if (left == 1) end_call(lead);
  require(left >= 1, "a call ends once");
}

// Removes the call from those in flight before its caller can see that it has ended.
void Executor::end_call(Operation& lead) {
  if (lead.is_message()) require(messages_.calls.fetch_sub(1) > 0, "calls that end have begun");
  lead.completion.ends.fetch_add(1, std::memory_order_release);
  operations_.give_back(lead);
}

// A rank that has aborted may have overwritten data that this rank's device has not read yet.
bool Executor::is_abandoned() {
  const std::optional<Fault> abandoned = wire_.find_abandoned();
  if (abandoned && !faulted_) fault(*abandoned);
  return abandoned.has_value();
}

// Checks messages only: poll asks the collectives' library once for all ended calls.
bool Executor::has_failed_library(const Operation& op) {
  if (!op.by_library) return false;
  auto found = Watch::check_library(op);
  if (!found) return false;
  if (!faulted_) fault(std::move(*found));
  return true;
}

void Executor::require(bool holds, const char* invariant) {
  if (holds || faulted_) return;
  fault({error(ErrorCode::InternalError,
               "hetccl has lost track of its calls (broken: %s): data may be wrong. This is a "
               "defect of hetccl: please report it, with what HETCCL_DUMP writes",
               invariant),
         -1,
         {}});
}

void Executor::fault(Fault found) {
  faulted_ = true;
  const Fault told = watch_->explain(std::move(found));
  if (options_.on_fault) options_.on_fault(told);
}

std::string Executor::describe_oldest() {
  std::string collective = watch_->describe_oldest();
  if (!collective.empty()) return collective;
  admit();
  std::string message;
  messages_.for_each_in_flight([&](Operation& op) {
    if (!message.empty() || !op.awaits_peer()) return;
    const uint32_t left = op.by_library ? 1 : static_cast<uint32_t>(op.outstanding);
    message = format("%s: slice %u of %u", describe(op.message).c_str(), op.n_slices - left + 1,
                     op.n_slices);
  });
  return message;
}

void Executor::abort() {
  admit();
  if (aborted_.exchange(true, std::memory_order_seq_cst)) return;
  wire_.close();
  if (options_.ccl != nullptr) options_.ccl->abort();
  for (MessageOrder* order : messages_.all()) {
    if (order->library != nullptr) order->library->pair->abort();
  }
  wire_.abandon_windows();
  release_streams();
}

bool Executor::aborts_have_begun() const {
  bool all = options_.ccl == nullptr || options_.ccl->abort_has_begun();
  for (const MessageOrder* order : messages_.all()) {
    all &= order->library == nullptr || order->library->pair->abort_has_begun();
  }
  return all;
}

// Releases streams only after the vendor's aborts have begun: a released stream continues with
// whatever is in memory, which another rank could take for a vendor result.
void Executor::release_streams() {
  if (released_ || !aborts_have_begun()) return;
  released_ = true;
  collectives_.release_waits();
  for (MessageOrder* order : messages_.all()) order->release_waits();
  for (Operation* op : messages_.from_any()) op->release_waits();
}

std::vector<Record> Executor::messages_in_flight() {
  admit();
  std::vector<Record> records;
  messages_.for_each_in_flight([&](Operation& op) { records.push_back(record_of(op)); });
  return records;
}

lower::RankTraits Executor::traits_of_rank(int local_rank) const {
  lower::RankTraits traits = traits_of(*options_.device, local_rank);
  traits.observed = options_.tracer != nullptr;
  return traits;
}

}  // namespace hetccl::exec
