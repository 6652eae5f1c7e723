#include "exec/wire.h"

#include <algorithm>

#include "exec/order.h"

namespace hetccl::exec {

using lower::Instruction;
using lower::Issue;
using lower::kEnd;
using lower::Opcode;
using lower::QueueKind;

namespace {

// The time that peers have to learn of an abort, before this rank's device stops waiting for them.
constexpr auto kFarewell = std::chrono::milliseconds(500);

bool is_message(const Operation& op, Issue issue) {
  const Instruction& code = op.code->list[issue.index];
  return lower::info_of(code.op).is(lower::OpcodeInfo::kMessage) &&
         op.travels(code.message, issue.slice);
}

const lower::Operand& operand_of(const Instruction& code) {
  return code.srcs.empty() ? code.dst : code.srcs[0];
}

}  // namespace

void Wire::use(Lane& lane, transport::Channel* channel) {
  const bool idle = lane.sends.posted == 0 && lane.recvs.posted == 0;
  if (!require(idle, lane, "no channel is replaced while it moves messages")) return;
  lane.channel = channel;
  if (channel == nullptr) return;
  // Earlier messages, such as a probe's, do not belong to this lane.
  lane.sends.completed = channel->sends_completed();
  lane.recvs.completed = channel->recvs_completed();
}

Wire::Lane* Wire::find(int peer, bool for_messages) {
  const auto known = std::find_if(lanes_.begin(), lanes_.end(), [&](const Lane& lane) {
    return lane.peer == peer && lane.for_messages == for_messages;
  });
  return known == lanes_.end() ? nullptr : &*known;
}

void Wire::connect(const Peer& peer, const Carried& carried) {
  Lane* known = find(peer.rank, peer.for_messages);
  if (known == nullptr) {
    Lane lane;
    lane.peer = peer.rank;
    lane.for_messages = peer.for_messages;
    lane.window = peer.window;
    lane.direct = peer.direct;
    lane.registered = peer.registered;
    lane.sends.operations = carried.sent;
    lane.recvs.operations = lane.acknowledgements.operations = carried.received;
    for (Queue* queue : {&lane.sends, &lane.recvs, &lane.acknowledgements})
      queue->next = queue->complete = {queue->operations->end()};
    known = &lanes_.emplace_back(std::move(lane));
    if (known->window != nullptr) shared_.push_back(known);
  }
  known->crosses = peer.crosses;
  use(*known, peer.channel);
}

bool Wire::require(bool holds, const Lane& lane, const char* invariant) {
  if (holds) return true;
  if (status_.ok()) {
    status_ = error(ErrorCode::InternalError,
                    "hetccl has lost track of its messages with rank %d (broken: %s): data may be "
                    "wrong. This is a defect of hetccl: please report it, with what HETCCL_DUMP "
                    "writes",
                    lane.peer, invariant);
  }
  return false;
}

template <typename Visit>
void Wire::for_each_of(const std::vector<int>& peers, Visit&& visit) const {
  for (const Lane& lane : lanes_) {
    if (lane.for_messages) continue;
    const auto found = std::lower_bound(peers.begin(), peers.end(), lane.peer);
    if (found != peers.end() && *found == lane.peer)
      visit(static_cast<size_t>(found - peers.begin()), lane);
  }
}

void Wire::find_windows(const std::vector<int>& peers, std::vector<Window*>& windows) const {
  windows.assign(peers.size(), nullptr);
  for_each_of(peers, [&](size_t at, const Lane& lane) { windows[at] = lane.window; });
}

std::vector<lower::Reach> Wire::reach_of(const std::vector<int>& peers) const {
  std::vector<lower::Reach> reach;
  for (const int peer : peers) reach.push_back({peer, false, 0});
  for_each_of(peers, [&](size_t at, const Lane& lane) {
    const size_t ring = lane.window == nullptr ? 0 : lane.window->ring_bytes();
    reach[at] = {lane.peer, lane.direct, ring, lane.registered};
  });
  return reach;
}

bool Wire::poll(TimePoint now) {
  if (!status_.ok()) return false;
  bool moved = match_any();
  for (Lane& lane : lanes_) {
    if (lane.channel == nullptr || (lane.for_messages && lane.idle())) continue;
    for (Queue* queue : {&lane.sends, &lane.recvs}) {
      moved |= complete(lane, *queue, now);
      moved |= run(lane, *queue, now);
    }
  }
  return moved;
}

Wire::Pending Wire::at(const Lane& lane, const Queue& queue, Cursor& cursor) {
  if (cursor.visitor != nullptr) {
    Operation& op = *cursor.visitor;
    const Issue issue =
        cursor.visit.at(*op.code, op.code->lanes.front().of(queue.kind), op.n_slices);
    if (issue.index != kEnd) return {&op, issue};
    cursor.visitor = nullptr;
  }
  InFlight& operations = *queue.operations;
  const uint64_t oldest = operations.oldest(), end = operations.end();
  if (cursor.operation < oldest) cursor = {oldest};
  for (; cursor.operation < end; cursor = {cursor.operation + 1}) {
    Operation& op = operations.at(cursor.operation);
    const auto& lanes = op.code->lanes;
    const auto mine = lane.for_messages
                          ? lanes.begin()
                          : std::lower_bound(lanes.begin(), lanes.end(), lane.peer,
                                             [](const lower::LaneCode& one, int peer) {
                                               return one.peer < peer;
                                             });
    if (mine == lanes.end() || (!lane.for_messages && mine->peer != lane.peer)) continue;
    const Issue issue = cursor.walk.at(*op.code, mine->of(queue.kind), op.n_slices);
    if (issue.index != kEnd) return {&op, issue};
  }
  return {};
}

Wire::Pending Wire::next_message(const Lane& lane, Queue& queue) {
  for (;;) {
    const Pending pending = at(lane, queue, queue.complete);
    if (pending.op == nullptr || is_message(*pending.op, pending.issue)) return pending;
    queue.complete.advance();
  }
}

// Asks ranks in rotation, so that a rank that sends all the time does not starve the others.
bool Wire::match_any() {
  if (any_.empty()) return false;
  const size_t first = next_any_;
  bool matched = false;
  for (size_t k = 0; k < lanes_.size(); ++k) {
    const size_t at = (first + k) % lanes_.size();
    if (!match_any(lanes_[at])) continue;
    next_any_ = at + 1;
    matched = true;
  }
  return matched;
}

bool Wire::match_any(Lane& lane) {
  if (!lane.for_messages || lane.channel == nullptr) return false;
  const auto incoming = lane.channel->incoming();
  if (!incoming) return false;
  const Operation* const next = next_message(lane, lane.recvs).op;
  const bool within = next != nullptr && next->outstanding < next->n_messages();
  if (lane.recvs.posted > 0 || within) return false;
  Operation* const any = any_.take(*incoming, next);
  if (any == nullptr) return false;
  const bool between = lane.window == nullptr && lane.recvs.next.visitor == nullptr;
  if (!require(between, lane, "a receive is put between messages, not into one")) return false;
  any->message.peer = lane.peer;
  if (any->message.source != nullptr) *any->message.source = lane.peer;
  for (Cursor* cursor : {&lane.recvs.next, &lane.recvs.complete}) {
    cursor->visitor = any;
    cursor->visit = {};
  }
  return true;
}

bool Wire::begin_receive(Lane& lane, Operation& op) {
  const bool visits = lane.recvs.next.visitor == &op;
  if (!visits && !any_.empty() && any_.hold(op, lane.channel->incoming())) return false;
  op.call.sequence = lane.begun++;
  return true;
}

bool Wire::may_start(Lane& lane, Pending pending) {
  Operation& op = *pending.op;
  const Instruction& code = op.code->list[pending.issue.index];
  if (code.op == Opcode::Wait) return op.is_over(code, pending.issue.slice);
  if (code.op == Opcode::Acquire) {
    return op.turn.left == nullptr || op.turn.left->reached(op.turn.before);
  }
  if (op.given_up.load(std::memory_order_acquire)) return false;
  // A failed vendor library ends its work with whatever is in memory, which must not be sent.
  const bool sends = code.op == Opcode::Send || code.op == Opcode::SendHeader;
  if (sends) return options_.ccl == nullptr || options_.ccl->async_error().ok();
  return !lane.for_messages || pending.issue.slice > 0 || begin_receive(lane, op);
}

bool Wire::run(Lane& lane, Queue& queue, TimePoint now) {
  bool posted = false;
  for (;;) {
    const Pending pending = at(lane, queue, queue.next);
    if (pending.op == nullptr || !may_start(lane, pending)) return posted;
    if (is_message(*pending.op, pending.issue)) {
      post(lane, queue, pending, now);
      posted = true;
    }
    queue.next.advance();
  }
}

void Wire::post(Lane& lane, Queue& queue, Pending pending, TimePoint now) {
  Operation& op = *pending.op;
  const Issue issue = pending.issue;
  const Instruction& code = op.code->list[issue.index];
  const lower::Operand& operand = operand_of(code);
  const size_t bytes = op.bytes_of(operand.region, issue.slice);
  const bool header = !lower::info_of(code.op).is(lower::OpcodeInfo::kMovesBytes);
  transport::Parcel transfer;
  transfer.data = header ? nullptr : op.resolve(operand, issue.slice).data;
  transfer.bytes = header ? 0 : bytes;
  transfer.info = {lane.for_messages ? options_.messages : options_.collectives,
                   op.call.sequence,
                   issue.slice,
                   op.code->messages[code.message].number + op.call.tag,
                   op.call.signature,
                   header ? bytes : 0,
                   op.call.round};
  transfer.streams = op.call.resources.tcp_streams;
  transfer.registered = !header && op.is_registered(operand);
  if (options_.tracer != nullptr) options_.tracer->post(op, issue, now);
  ++queue.posted;
  queue.kind == QueueKind::Send ? lane.channel->post_send(transfer)
                                : lane.channel->post_recv(transfer);
}

bool Wire::complete(Lane& lane, Queue& queue, TimePoint now) {
  const bool sends = queue.kind == QueueKind::Send;
  const uint64_t done = sends ? lane.channel->sends_completed() : lane.channel->recvs_completed();
  if (done == queue.completed) return false;
  if (!require(done > queue.completed, lane, "a channel's counts only grow")) return false;
  for (; queue.completed < done; ++queue.completed) {
    const Pending pending = next_message(lane, queue);
    const bool known = pending.op != nullptr && queue.posted > 0;
    if (!require(known, lane, "only a message that was posted completes")) break;
    if (!finish_message(lane, queue, pending, now)) break;
    queue.complete.advance();
    // Forget it now: it may be retired and reused before the next look.
    if (pending.op == queue.complete.visitor && pending.op->outstanding == 0)
      queue.next.visitor = queue.complete.visitor = nullptr;
  }
  return true;
}

bool Wire::finish_message(Lane& lane, Queue& queue, Pending pending, TimePoint now) {
  Operation& op = *pending.op;
  const Issue issue = pending.issue;
  const Instruction& code = op.code->list[issue.index];
  const bool sends = queue.kind == QueueKind::Send;
  if (!require(op.outstanding > 0, lane, "a message completes once")) return false;
  --queue.posted;
  --op.outstanding;
  if (code.done != lower::kNoSync) {
    auto& word = op.flag(code.done).word;
    const uint32_t count = op.completed(code.message, issue.slice);
    const bool later = word.load(std::memory_order_relaxed) < count;
    if (!require(later, lane, "the slices of a message complete in order")) return false;
    word.store(count, std::memory_order_release);
  }
  if (options_.tracer != nullptr) {
    using enum Tracer::PeerTrack;
    const auto which = lane.for_messages ? Messages : Collectives;
    options_.tracer->complete(op, issue, Tracer::peer_track(lane.peer, which, sends), now);
  }
  if (!sends && !lane.for_messages) return true;
  const uint64_t bytes = op.bytes_of(operand_of(code).region, issue.slice);
  if (sends && lane.crosses) bytes_sent_.fetch_add(bytes, std::memory_order_relaxed);
  if (op.order->recorder != nullptr) op.order->recorder->move(op.recorded_as(), bytes);
  return true;
}

void Wire::acknowledge_reads() {
  for (Lane* lane : shared_) {
    Cursor& next = lane->acknowledgements.next;
    for (;; next.advance()) {
      const Pending pending = at(*lane, lane->acknowledgements, next);
      if (pending.op == nullptr) break;
      Operation& op = *pending.op;
      const Instruction& code = op.code->list[pending.issue.index];
      if (code.op == Opcode::Acknowledge) {
        if (op.travels(code.message, pending.issue.slice)) lane->window->count_read();
      } else if (!op.is_over(code, pending.issue.slice) && !op.is_finished()) {
        break;
      }
    }
  }
}

bool Wire::exchange_credit() {
  acknowledge_reads();
  bool moved = false;
  for (Lane* lane : shared_) moved |= lane->window->exchange();
  return moved;
}

void Wire::close() {
  any_.clear();
  for (Lane& lane : lanes_) {
    if (lane.channel != nullptr) lane.channel->close();
  }
}

std::optional<Fault> Wire::find_abandoned() const {
  for (const Lane* lane : shared_) {
    if (!lane->window->abandoned()) continue;
    return Fault{error(ErrorCode::RemoteError, "rank %d has aborted the communicator", lane->peer),
                 lane->peer,
                 {}};
  }
  return {};
}

void Wire::abandon_windows() {
  for (Lane* lane : shared_) lane->window->abandon();
}

void Wire::release_windows(TimePoint now) {
  if (!releasing_since_) releasing_since_ = now;
  const bool late = now - *releasing_since_ >= kFarewell;
  for (Lane* lane : shared_) {
    if (lane->released || (!lane->window->abandoned() && !late)) continue;
    lane->window->release_waits();
    lane->released = true;
  }
}

bool Wire::has_unread() const {
  return std::any_of(shared_.begin(), shared_.end(),
                     [](const Lane* lane) { return lane->window->unread(); });
}

std::optional<Wire::Broken> Wire::find_broken() {
  for (Lane& lane : lanes_) {
    if (lane.channel == nullptr || lane.channel->status().ok()) continue;
    for (Queue* queue : {&lane.sends, &lane.recvs}) {
      const Pending pending = next_message(lane, *queue);
      if (pending.op != nullptr) return Broken{lane.peer, &lane.channel->status(), pending.op};
    }
  }
  return {};
}

std::vector<int> Wire::awaited_peers() {
  std::vector<int> peers;
  for (Lane& lane : lanes_) {
    if (lane.for_messages) continue;
    const bool waits = next_message(lane, lane.sends).op != nullptr ||
                       next_message(lane, lane.recvs).op != nullptr;
    if (waits) peers.push_back(lane.peer);
  }
  return peers;
}

std::optional<Issue> Wire::first_incomplete(const Operation& op) {
  std::optional<Issue> first;
  const auto order = [](Issue one) { return std::pair(one.slice, one.index); };
  for (Lane& lane : lanes_) {
    if (lane.channel == nullptr || lane.for_messages) continue;
    for (Queue* queue : {&lane.sends, &lane.recvs}) {
      const Pending pending = next_message(lane, *queue);
      if (pending.op != &op) continue;
      if (!first || order(pending.issue) < order(*first)) first = pending.issue;
    }
  }
  return first;
}

}  // namespace hetccl::exec
