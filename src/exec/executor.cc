// The engine's side of the interpreter: messages, completion, deadlines, abort. launch.cc is the
// caller's side.
#include "exec/executor.h"

#include <algorithm>
#include <cassert>

namespace hetccl::exec {
namespace {

// How long the flag of a mark may take to be seen, and to be written.
constexpr auto kTelling = std::chrono::milliseconds(10);
constexpr auto kSettling = std::chrono::seconds(1);
// How long others have to learn of an abort, before this rank's device no longer cares for them.
constexpr auto kFarewell = std::chrono::milliseconds(500);

std::string list_of(const std::vector<int>& ranks) {
  std::string text;
  for (const int rank : ranks) text += (text.empty() ? "" : ", ") + std::to_string(rank);
  return text;
}

}  // namespace

Executor::Executor(ExecutorOptions options) : options_(std::move(options)) {
  staged_ = (options_.device->capabilities() & device::kHostAccessible) == 0;
  kernels_ = (options_.device->capabilities() & device::kKernels) != 0;
  ring_.resize(kMaxInFlight);
}

void Executor::connect(const Peer& peer) {
  if (aborted_ && peer.channel != nullptr) peer.channel->close();
  bool known = false;
  for (auto& lane : lanes_) {
    if (lane.peer != peer.rank) continue;
    lane.use(peer.channel);
    known = true;
  }
  assert(peer.window == nullptr || out_stream_ != nullptr);
  if (peer.window != nullptr) windows_.push_back({peer.rank, peer.window, {launched_, 0}});
  if (known) return;
  lanes_.emplace_back(peer, true);
  lanes_.emplace_back(peer, false);
}

Executor::~Executor() = default;

Result<std::unique_ptr<Executor>> Executor::create(ExecutorOptions options) {
  std::unique_ptr<Executor> executor(new Executor(std::move(options)));
  HETCCL_TRY(executor->open());
  return executor;
}

Status Executor::open() {
  auto& device = *options_.device;
  HETCCL_ASSIGN(ccl_stream_, device.create_stream());
  HETCCL_ASSIGN(work_stream_, device.create_stream());
  if (staged_ || options_.windows) {
    HETCCL_ASSIGN(out_stream_, device.create_stream());
    HETCCL_ASSIGN(in_stream_, device.create_stream());
  }
  HETCCL_ASSIGN(rotation_, Rotation::create(device));
  if (options_.settler != nullptr && staged_) {
    HETCCL_ASSIGN(marks_, EndMarks::create(device, *options_.settler));
  }
  HETCCL_ASSIGN(started_, device.create_event());
  HETCCL_ASSIGN(joined_, device.create_event());
  return {};
}

bool Executor::full() const {
  return launched_.load(std::memory_order_relaxed) - retired_.load(std::memory_order_acquire) >=
         kMaxInFlight;
}

// Others' streams read windows, and ring nobody.
bool Executor::silent() const {
  return options_.ccl->shm_source() == nullptr ||
         std::any_of(windows_.begin(), windows_.end(),
                     [](const Shared& shared) { return shared.window->unread(); });
}

bool Executor::poll(TimePoint now) {
  const uint64_t before = retired_.load(std::memory_order_relaxed);
  bool moved = false;
  polled_at_ = now;
  if (marks_ != nullptr) marks_->look(now);
  if (aborted_) {
    release_streams();
    release_windows(now);
  } else {
    for (auto& lane : lanes_) moved |= poll_lane(lane);
    if (!moved && !faulted_) check(now);
  }
  if (options_.recorder != nullptr) note_starts(now);
  if (options_.tracer != nullptr) {
    const uint64_t launched = launched_.load(std::memory_order_acquire);
    for (uint64_t n = before; n < launched; ++n) options_.tracer->look(n, at(n), now);
  }
  retire(now);
  // After that: what a retired operation has read, its sender must learn while somebody polls.
  if (!aborted_) {
    for (Shared& shared : windows_) {
      note_reads(shared);
      moved |= shared.window->exchange();
    }
  }
  const bool retired = retired_.load(std::memory_order_relaxed) != before;
  // What a failed library ends looks complete: say so before anybody believes it.
  if (retired && !aborted_ && !faulted_) check_library();
  return moved || retired;
}

bool Executor::poll_lane(Lane& lane) {
  if (lane.channel == nullptr) return false;
  bool moved = complete(lane);
  while (post(lane)) moved = true;
  return moved;
}

// Null where it has none with that peer.
const std::vector<plan::Issue>* Executor::messages_of(const Operation& op, int peer, bool sends) {
  const auto& peers = op.program->peers;
  const auto found = std::lower_bound(peers.begin(), peers.end(), peer);
  if (found == peers.end() || *found != peer) return nullptr;
  const auto lane = static_cast<size_t>(found - peers.begin());
  return sends ? &op.sends[lane] : &op.recvs[lane];
}

const plan::Issue* Executor::entry_at(const Lane& lane, Cursor& cursor) {
  const uint64_t retired = retired_.load(std::memory_order_relaxed);
  if (cursor.operation < retired) cursor = {retired, 0};
  const uint64_t launched = launched_.load(std::memory_order_acquire);
  for (; cursor.operation < launched; cursor = {cursor.operation + 1, 0}) {
    const auto* messages = messages_of(at(cursor.operation), lane.peer, lane.send);
    if (messages != nullptr && cursor.entry < messages->size()) return &(*messages)[cursor.entry];
  }
  return nullptr;
}

bool Executor::ready(Operation& op, plan::Issue issue) const {
  const StepInfo& info = op.program->steps[issue.step];
  const uint32_t k = issue.slice;
  const bool reuses = k >= op.n_slots;
  const uint32_t reused = k - op.n_slots + 1;  // slices done that free this slot
  if (on_streams(op, issue.step)) {
    const bool send = info.queue == Queue::Send;
    if (op.window_of(issue.step) != nullptr) return !send || op.done_of(issue.step).reached(k + 1);
    if (send) return op.staged_of(issue.step).reached(k + 1);
    if (retired_.load(std::memory_order_relaxed) < op.turn.after) return false;
    return !reuses || op.done_of(issue.step).reached(reused);
  }
  if (info.needs_start && !op.started().reached(1)) return false;
  const auto all = [&](const std::vector<Wait>& waits, uint32_t value) {
    return std::all_of(waits.begin(), waits.end(),
                       [&](Wait wait) { return op.done_of(wait.step).reached(value); });
  };
  return all(info.deps, k + 1) && (!reuses || all(info.recycled, reused));
}

bool Executor::post(Lane& lane) {
  const plan::Issue* entry = entry_at(lane, lane.post);
  if (entry == nullptr) return false;
  Operation& op = at(lane.post.operation);
  const plan::Issue issue = *entry;
  if (!ready(op, issue) || op.given_up.load(std::memory_order_acquire)) return false;
  // A vendor library that has failed ends its work with whatever is in memory: that must not
  // travel.
  if (lane.send && !options_.ccl->async_error().ok()) return false;
  const plan::Step& step = op.program->plan.steps[issue.step];
  const auto [data, bytes] = op.payload(issue);
  const bool header_alone = op.window_of(issue.step) != nullptr;
  transport::Transfer transfer;
  transfer.data = header_alone ? nullptr : staged_ ? op.staging_of(issue.step, issue.slice) : data;
  transfer.bytes = header_alone ? 0 : bytes;
  transfer.info = {options_.communicator, op.call.sequence,  issue.slice,
                   step.message,          op.call.signature, header_alone ? bytes : 0};
  if (options_.tracer != nullptr) {
    options_.tracer->post(lane.post.operation, op, issue, polled_at_);
  }
  lane.send ? lane.channel->post_send(transfer) : lane.channel->post_recv(transfer);
  ++lane.post.entry;
  return true;
}

bool Executor::complete(Lane& lane) {
  const uint64_t now =
      lane.send ? lane.channel->sends_completed() : lane.channel->recvs_completed();
  if (now == lane.completed) return false;
  for (; lane.completed < now; ++lane.completed) {
    const plan::Issue* entry = entry_at(lane, lane.complete);
    if (entry == nullptr) break;  // cannot be: only what was posted completes
    Operation& op = at(lane.complete.operation);
    const bool arrived = !lane.send && on_streams(op, entry->step);
    if (lane.send && on_streams(op, entry->step)) --op.unsent;
    if (!lane.send || op.window_of(entry->step) == nullptr) {
      auto& flag = arrived ? op.staged_of(entry->step) : op.done_of(entry->step);
      flag.word.store(entry->slice + 1, std::memory_order_release);
    }
    if (options_.tracer != nullptr) {
      options_.tracer->complete(lane.complete.operation, op, *entry, track_of(lane), polled_at_);
    }
    if (lane.send) {
      const uint64_t bytes = op.payload(*entry).bytes;
      if (lane.crosses) bytes_sent_.fetch_add(bytes, std::memory_order_relaxed);
      if (options_.recorder != nullptr) options_.recorder->send(op.call.sequence, bytes);
    }
    ++lane.complete.entry;
  }
  return true;
}

uint16_t Executor::track_of(const Lane& lane) const {
  return static_cast<uint16_t>(Tracer::kFirstLaneTrack + (&lane - lanes_.data()));
}

std::map<uint16_t, std::string> Executor::tracks() const {
  std::map<uint16_t, std::string> names = {{Tracer::kCclTrack, "ccl"},
                                           {Tracer::kWorkTrack, "work"}};
  for (const Lane& lane : lanes_) {
    names[track_of(lane)] = format(lane.send ? "send to rank %d" : "recv from rank %d", lane.peer);
  }
  return names;
}

void Executor::note_starts(TimePoint now) {
  const uint64_t launched = launched_.load(std::memory_order_acquire);
  for (; noted_ < launched; ++noted_) {
    Operation& op = at(noted_);
    if (op.program->is_direct()) continue;  // it is enqueued without a sign of its own
    if (!op.started().reached(1)) return;
    options_.recorder->start(op.call.sequence, now);
  }
}

void Executor::note_end(uint64_t number, TimePoint now) {
  noted_ = std::max(noted_, number + 1);  // once retired it is another operation's memory
  const bool failed = aborted_ || faulted_;
  options_.recorder->end(at(number).call.sequence,
                         failed ? Record::State::Failed : Record::State::Completed, now);
}

void Executor::retire(TimePoint now) {
  uint64_t retired = retired_.load(std::memory_order_relaxed);
  const uint64_t launched = launched_.load(std::memory_order_acquire);
  while (retired < launched && at(retired).is_finished()) {
    if (!aborted_ && abandoned()) return;
    // Until the abort that is to come, messages and calls may still be under way.
    const bool lost = at(retired).marks != nullptr && marks_->failed();
    if ((lost || at(retired).given_up.load(std::memory_order_acquire)) && !aborted_) return;
    if (!at(retired).ended() && !aborted_) return;
    // The flags of other messages are set by `complete`, so every lane has passed it or stands at
    // its end.
    if (options_.tracer != nullptr) options_.tracer->retire(retired, at(retired), now);
    if (options_.recorder != nullptr) note_end(retired, now);
    for (Shared& shared : windows_) note_reads(shared);
    if (at(retired).marks == nullptr) unmarked_.fetch_sub(1);
    if (at(retired).turn.left != nullptr && !aborted_) Rotation::leave(at(retired).turn);
    std::lock_guard lock(free_mutex_);
    free_.push_back(&at(retired));
    retired_.store(++retired, std::memory_order_release);
  }
}

// Counts what this rank's device has read: its steps' flags say so, or the end of their operation.
void Executor::note_reads(Shared& shared) {
  const uint64_t launched = launched_.load(std::memory_order_acquire);
  Cursor& next = shared.reading;
  for (; next.operation < launched; next = {next.operation + 1, 0}) {
    Operation& op = at(next.operation);
    const auto* messages = messages_of(op, shared.peer, false);
    if (messages == nullptr) continue;
    for (; next.entry < messages->size(); ++next.entry) {
      const auto [slice, step] = (*messages)[next.entry];
      if (op.window_of(step) == nullptr) continue;
      if (!op.done_of(step).reached(slice + 1) && !op.is_finished()) return;
      shared.window->count_read();
    }
  }
}

// Who has aborted may have written over what this rank's device had yet to read.
bool Executor::abandoned() {
  const auto left = std::find_if(windows_.begin(), windows_.end(),
                                 [](const Shared& shared) { return shared.window->abandoned(); });
  if (left == windows_.end()) return false;
  const Status status =
      error(Code::RemoteError, "rank %d has given the communicator up", left->peer);
  if (!faulted_) fault({status, left->peer, {}});
  return true;
}

// What the device writes then the other end may have yet to read, and pass on to ranks that share
// no window with this one: so not before it has ended its own work, or has had time to.
void Executor::release_windows(TimePoint now) {
  if (!released_) return;
  if (!abort_seen_) abort_seen_ = now;
  for (Shared& shared : windows_) {
    if (shared.released) continue;
    if (!shared.window->abandoned() && now - *abort_seen_ < kFarewell) continue;
    shared.window->release_waits();
    shared.released = true;
  }
}

void Executor::check(TimePoint now) {
  for (auto& lane : lanes_) {
    if (lane.channel == nullptr || lane.channel->status().ok()) continue;
    if (entry_at(lane, lane.complete) == nullptr) continue;
    return fault(fault_of(lane));
  }
  if (!check_library() || !check_departures(now)) return;
  if (now < next_deadline_check_) return;
  next_deadline_check_ = now + std::chrono::milliseconds(1);
  const uint64_t launched = launched_.load(std::memory_order_acquire);
  for (uint64_t n = retired_.load(std::memory_order_relaxed); n < launched; ++n) {
    Operation& op = at(n);
    if (now < op.call.deadline || op.ended()) continue;
    if (may_have_ended(n, now)) return;
    const auto given =
        std::chrono::round<std::chrono::milliseconds>(op.call.deadline - op.call.launched);
    return stall(Code::Timeout, op.call,
                 format("timed out after %lld ms", static_cast<long long>(given.count())), -1);
  }
}

// Where messages do not fit, ranks called different collectives, as a rule: their calls will tell.
Fault Executor::fault_of(const Lane& lane) {
  const Status& status = lane.channel->status();
  if (status.code() != Code::InvalidUsage) return {status, lane.peer, {}};
  const Call& call = at(lane.complete.operation).call;
  Stall stalled;
  stalled.sequence = call.sequence;
  stalled.call = describe(call.signature, call.sequence);
  stalled.what = "the ranks disagree on " + stalled.call;
  stalled.detail = status.message();
  return {status, lane.peer, std::move(stalled)};
}

// What has ended may just not have been told: its flag is not written, or was a moment ago. Whoever
// writes it may wait inside the driver, but not for ever.
bool Executor::may_have_ended(uint64_t number, TimePoint now) {
  EndMarks* marks = at(number).marks;
  if (marks == nullptr) return false;
  const bool settled = marks->settled(at(number).mark);
  if (!settled) marks->ask();
  if (!overdue_ || overdue_->number != number || overdue_->settled != settled) {
    overdue_ = Overdue{number, settled, now};
  }
  return now - overdue_->since < (settled ? kTelling : kSettling);
}

bool Executor::check_library() {
  Status status = options_.ccl->async_error();
  if (status.ok() && marks_ != nullptr && marks_->failed()) status = marks_->failure();
  if (status.ok()) return true;
  fault({std::move(status), -1, {}});
  return false;
}

// A rank may leave while others still work on what it has completed; but what it has not called
// cannot complete. Those others have the grace to finish before everything ends.
bool Executor::check_departures(TimePoint now) {
  if (options_.departures == nullptr) return true;
  const uint64_t first = options_.departures->first_incomplete();
  if (first == UINT64_MAX) return true;
  const uint64_t oldest = retired_.load(std::memory_order_relaxed);
  if (oldest == launched_.load(std::memory_order_acquire)) return true;
  Operation& op = at(oldest);
  if (op.call.sequence < first || op.ended()) return true;
  if (!abandoned_ || abandoned_->sequence != op.call.sequence) {
    abandoned_ = op.call;
    abandoned_since_ = now;
  }
  if (now - abandoned_since_ < options_.departure_grace) return true;
  stall(Code::RemoteError, *abandoned_, "cannot complete", options_.departures->rank());
  return false;
}

// Whether the user's stream has come to it, as far as this rank can tell.
bool Executor::has_begun(uint64_t number) {
  Operation& op = at(number);
  const bool direct = op.program == nullptr || op.program->is_direct();
  return direct || op.started().reached(1);
}

// The first slice of which not all is done, as far as this rank can tell, and the first such step.
std::string Executor::place_of(uint64_t number) {
  Operation& op = at(number);
  if (op.program == nullptr || op.program->is_direct()) return "its cluster's library";
  if (!has_begun(number)) return "its stream has not come to it";
  std::optional<plan::Issue> first;
  const auto look = [&](plan::Issue issue) {
    const auto order = [](plan::Issue one) { return std::pair(one.slice, one.step); };
    if (!first || order(issue) < order(*first)) first = issue;
  };
  for (Lane& lane : lanes_) {
    const plan::Issue* entry = lane.channel != nullptr ? entry_at(lane, lane.complete) : nullptr;
    if (entry != nullptr && lane.complete.operation == number) look(*entry);
  }
  for (size_t s = 0; s < op.program->steps.size(); ++s) {
    const auto step = static_cast<uint16_t>(s);
    const uint32_t done = op.done_of(step).word.load(std::memory_order_acquire);
    if (op.program->steps[step].writes_flag && done < op.n_slices) look({done, step});
  }
  if (!first) return "its last steps";
  const plan::Step& step = op.program->plan.steps[first->step];
  std::string what = plan::name_of(step.kind);
  if (step.kind == plan::StepKind::Send) what += format(" to rank %d", step.peer);
  if (step.kind == plan::StepKind::Recv) what += format(" from rank %d", step.peer);
  return format("slice %u of %u, step %u (%s)", first->slice + 1, op.n_slices,
                unsigned{first->step}, what.c_str());
}

std::string Executor::standing() {
  const uint64_t oldest = retired_.load(std::memory_order_relaxed);
  if (oldest == launched_.load(std::memory_order_acquire)) return "";
  const Call& call = at(oldest).call;
  return describe(call.signature, call.sequence) + ": " + place_of(oldest);
}

// `departed`: a rank that has left, or -1.
void Executor::stall(Code code, const Call& call, const std::string& how, int departed) {
  const uint64_t oldest = retired_.load(std::memory_order_relaxed);
  const bool begun = has_begun(oldest);
  std::vector<int> late;
  for (auto& lane : lanes_) {
    const bool waits = begun && entry_at(lane, lane.complete) != nullptr;
    if (waits && (late.empty() || late.back() != lane.peer)) late.push_back(lane.peer);
  }
  Stall stalled;
  stalled.sequence = call.sequence;
  stalled.call = describe(call.signature, call.sequence);
  stalled.what = stalled.call + " " + how;
  stalled.detail = departed >= 0  ? format("rank %d has left the communicator", departed)
                   : !begun       ? place_of(oldest)
                   : late.empty() ? "it waits for ranks of its own cluster"
                                  : "it waits for messages to or from rank " + list_of(late);
  if (begun) stalled.detail += "; it is at " + place_of(oldest);
  const int culprit = departed < 0 && late.size() == 1 ? late[0] : departed;
  fault({Status(code, stalled.what + ": " + stalled.detail), culprit, std::move(stalled)});
}

void Executor::fault(const Fault& fault) {
  // What breaks while a rank is missed breaks because of that: others have run out of patience.
  if (!fault.stall && abandoned_) {
    return stall(Code::RemoteError, *abandoned_, "cannot complete", options_.departures->rank());
  }
  faulted_ = true;
  if (options_.on_fault) options_.on_fault(fault);
}

void Executor::abort() {
  if (aborted_.exchange(true, std::memory_order_seq_cst)) return;
  for (auto& lane : lanes_) {
    if (lane.channel != nullptr) lane.channel->close();
  }
  options_.ccl->abort();
  for (const Shared& shared : windows_) shared.window->abandon();
  release_streams();
}

// What streams wait for has not come, and what follows goes on with whatever is in memory: another
// rank could take that for the result of a vendor's call, while the vendor's abort is still to
// come.
void Executor::release_streams() {
  if (released_ || !options_.ccl->abort_has_begun()) return;
  released_ = true;
  const uint64_t launched = launched_.load(std::memory_order_seq_cst);
  for (uint64_t n = retired_.load(std::memory_order_relaxed); n < launched; ++n) {
    at(n).release_waits();
  }
  rotation_->release_waits();
}

}  // namespace hetccl::exec
