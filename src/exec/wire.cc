#include "exec/wire.h"

#include <algorithm>
#include <map>

namespace hetccl::exec {

using lower::Instruction;
using lower::Issue;
using lower::kEnd;
using lower::Opcode;

namespace {

// How long others have to learn of an abort, before this rank's device no longer waits for them.
constexpr auto kFarewell = std::chrono::milliseconds(500);

bool is_message(const Operation& op, Issue issue) {
  const Instruction& code = op.code->list[issue.index];
  return code.op != Opcode::Wait && code.op != Opcode::Acquire &&
         op.travels(code.message, issue.slice);
}

bool by_header(Opcode op) {
  return !lower::info_of(op).is(lower::OpcodeInfo::kMovesBytes);
}

const lower::Operand& operand_of(const Instruction& code) {
  return code.srcs.empty() ? code.dst : code.srcs[0];
}

}  // namespace

void Wire::use(Lane& lane, transport::Channel* channel) {
  lane.channel = channel;
  if (channel == nullptr) return;
  // Messages that came before, as a probe's, are not this lane's.
  lane.sends.completed = channel->sends_completed();
  lane.recvs.completed = channel->recvs_completed();
}

Wire::Lane* Wire::find(int peer) {
  const auto known = std::find_if(lanes_.begin(), lanes_.end(),
                                  [&](const Lane& lane) { return lane.peer == peer; });
  return known == lanes_.end() ? nullptr : &*known;
}

void Wire::connect(const Peer& peer, const Carried& carried) {
  Lane* known = find(peer.rank);
  if (known == nullptr) {
    Lane lane;
    lane.peer = peer.rank;
    lane.alone = carried.alone;
    lane.window = peer.window;
    lane.direct = peer.direct;
    lane.sends.operations = carried.sent;
    lane.recvs.operations = lane.acknowledgements.operations = carried.received;
    for (Queue* queue : {&lane.sends, &lane.recvs, &lane.acknowledgements})
      queue->next = queue->complete = {queue->operations->end()};
    known = &lanes_.emplace_back(std::move(lane));
  }
  known->crosses = peer.crosses;
  use(*known, peer.channel);
}

bool Wire::is_receiving(int peer) {
  return find(peer)->recvs.posted > 0;
}

uint64_t Wire::next_received(int peer) {
  Lane& lane = *find(peer);
  const bool any = next_message(lane, lane.recvs).index != kEnd;
  return any ? lane.recvs.complete.operation : lane.recvs.operations->end();
}

// Operations before it may be complete, and not retired, since their streams have not gone on yet.
bool Wire::receive_next(int peer, Operation& op) {
  const uint64_t next = next_received(peer);
  Lane& lane = *find(peer);
  Queue& queue = lane.recvs;
  InFlight& operations = *queue.operations;
  const bool between = lane.alone && lane.window == nullptr && queue.posted == 0 &&
                       (next == operations.end() ||
                        operations.at(next).outstanding == operations.at(next).n_messages());
  if (!require(between, lane, "a receive is put between messages, not into one")) return false;
  operations.put_before(next, op);
  queue.next = queue.complete = {next - 1};
  return true;
}

bool Wire::require(bool holds, const Lane& lane, const char* invariant) {
  if (holds) return true;
  if (status_.ok()) {
    status_ = error(Code::InternalError,
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
    reach[at] = {lane.peer, lane.direct, ring};
  });
  return reach;
}

bool Wire::poll(TimePoint now) {
  if (!status_.ok()) return false;
  bool moved = false;
  for (Lane& lane : lanes_) {
    if (lane.channel == nullptr) continue;
    for (Queue* queue : {&lane.sends, &lane.recvs}) {
      moved |= complete(lane, *queue, now);
      moved |= run(lane, *queue, now);
    }
  }
  return moved;
}

Issue Wire::at(const Lane& lane, const Queue& queue, Cursor& cursor) {
  InFlight& operations = *queue.operations;
  const uint64_t oldest = operations.oldest(), end = operations.end();
  if (cursor.operation < oldest) cursor = {oldest};
  for (; cursor.operation < end; cursor = {cursor.operation + 1}) {
    const Operation& op = operations.at(cursor.operation);
    const auto& lanes = op.code->lanes;
    const auto mine =
        lane.alone
            ? lanes.begin()
            : std::lower_bound(lanes.begin(), lanes.end(), lane.peer,
                               [](const lower::Lane& one, int peer) { return one.peer < peer; });
    if (mine == lanes.end() || (!lane.alone && mine->peer != lane.peer)) continue;
    const auto& list = queue.list == List::Sends   ? mine->sends
                       : queue.list == List::Recvs ? mine->recvs
                                                   : mine->acknowledgements;
    const Issue issue = cursor.walk.at(*op.code, list, op.n_slices);
    if (issue.index != kEnd) return issue;
  }
  return {0, kEnd};
}

Issue Wire::next_message(const Lane& lane, Queue& queue) {
  for (;;) {
    const Issue issue = at(lane, queue, queue.complete);
    if (issue.index == kEnd) return issue;
    if (is_message(queue.operations->at(queue.complete.operation), issue)) return issue;
    queue.complete.walk.advance();
  }
}

bool Wire::may_start(const Lane& lane, Operation& op, Issue issue) const {
  const Instruction& code = op.code->list[issue.index];
  if (code.op == Opcode::Wait) return op.is_over(code, issue.slice);
  if (code.op == Opcode::Acquire) {
    return op.turn.left == nullptr || op.turn.left->reached(op.turn.before);
  }
  if (op.given_up.load(std::memory_order_acquire)) return false;
  // A vendor library that has failed ends its work with whatever is in memory: that must not
  // travel.
  const bool sends = code.op == Opcode::Send || code.op == Opcode::SendHeader;
  if (sends) return options_.ccl == nullptr || options_.ccl->async_error().ok();
  const bool first = options_.begin_receive && issue.slice == 0;
  return !first || options_.begin_receive(lane.peer, op);
}

bool Wire::run(Lane& lane, Queue& queue, TimePoint now) {
  bool posted = false;
  for (;;) {
    const Issue issue = at(lane, queue, queue.next);
    if (issue.index == kEnd) return posted;
    Operation& op = queue.operations->at(queue.next.operation);
    if (!may_start(lane, op, issue)) return posted;
    if (is_message(op, issue)) {
      post(lane, queue, issue, now);
      posted = true;
    }
    queue.next.walk.advance();
  }
}

void Wire::post(Lane& lane, Queue& queue, Issue issue, TimePoint now) {
  Operation& op = queue.operations->at(queue.next.operation);
  const Instruction& code = op.code->list[issue.index];
  const lower::Operand& operand = operand_of(code);
  const size_t bytes = op.bytes_of(operand.region, issue.slice);
  const bool header = by_header(code.op);
  transport::Transfer transfer;
  transfer.data = header ? nullptr : op.resolve(operand, issue.slice).data;
  transfer.bytes = header ? 0 : bytes;
  transfer.info = {options_.communicator, op.call.sequence,
                   issue.slice,           op.code->messages[code.message].number + op.call.tag,
                   op.call.signature,     header ? bytes : 0,
                   op.call.round};
  transfer.streams = op.call.resources.tcp_streams;
  if (options_.tracer != nullptr) options_.tracer->post(queue.next.operation, op, issue, now);
  ++queue.posted;
  queue.list == List::Sends ? lane.channel->post_send(transfer) : lane.channel->post_recv(transfer);
}

bool Wire::complete(Lane& lane, Queue& queue, TimePoint now) {
  const bool sends = queue.list == List::Sends;
  const uint64_t done = sends ? lane.channel->sends_completed() : lane.channel->recvs_completed();
  if (done == queue.completed) return false;
  for (; queue.completed < done; ++queue.completed) {
    const Issue issue = next_message(lane, queue);
    const bool known = issue.index != kEnd && queue.posted > 0;
    if (!require(known, lane, "only a message that was posted completes")) break;
    if (!finish_message(lane, queue, issue, now)) break;
    queue.complete.walk.advance();
  }
  return true;
}

bool Wire::finish_message(Lane& lane, Queue& queue, Issue issue, TimePoint now) {
  const uint64_t number = queue.complete.operation;
  Operation& op = queue.operations->at(number);
  const Instruction& code = op.code->list[issue.index];
  const bool sends = queue.list == List::Sends;
  if (!require(op.outstanding > 0, lane, "a message completes once")) return false;
  --queue.posted;
  --op.outstanding;
  if (code.done != lower::kNoSync) {
    op.flag(code.done).word.store(op.completed(code.message, issue.slice),
                                  std::memory_order_release);
  }
  if (options_.tracer != nullptr) {
    options_.tracer->complete(number, op, issue, track_of(lane, sends), now);
  }
  if (!sends) return true;
  const uint64_t bytes = op.bytes_of(operand_of(code).region, issue.slice);
  if (lane.crosses) bytes_sent_.fetch_add(bytes, std::memory_order_relaxed);
  if (options_.recorder != nullptr) options_.recorder->send(op.call.sequence, bytes);
  return true;
}

void Wire::acknowledge_reads() {
  for (Lane& lane : lanes_) {
    if (lane.window == nullptr) continue;
    Cursor& next = lane.acknowledgements.next;
    for (;; next.walk.advance()) {
      const Issue issue = at(lane, lane.acknowledgements, next);
      if (issue.index == kEnd) break;
      Operation& op = lane.acknowledgements.operations->at(next.operation);
      const Instruction& code = op.code->list[issue.index];
      if (code.op == Opcode::Acknowledge) {
        if (op.travels(code.message, issue.slice)) lane.window->count_read();
      } else if (!op.is_over(code, issue.slice) && !op.is_finished()) {
        break;
      }
    }
  }
}

bool Wire::exchange_credit() {
  acknowledge_reads();
  bool moved = false;
  for (Lane& lane : lanes_) moved |= lane.window != nullptr && lane.window->exchange();
  return moved;
}

void Wire::close() {
  for (Lane& lane : lanes_) {
    if (lane.channel != nullptr) lane.channel->close();
  }
}

std::optional<Fault> Wire::find_abandoned() const {
  for (const Lane& lane : lanes_) {
    if (lane.window == nullptr || !lane.window->abandoned()) continue;
    return Fault{error(Code::RemoteError, "rank %d has given the communicator up", lane.peer),
                 lane.peer,
                 {}};
  }
  return {};
}

void Wire::abandon_windows() {
  for (Lane& lane : lanes_) {
    if (lane.window != nullptr) lane.window->abandon();
  }
}

void Wire::release_windows(TimePoint now) {
  if (!releasing_since_) releasing_since_ = now;
  const bool late = now - *releasing_since_ >= kFarewell;
  for (Lane& lane : lanes_) {
    if (lane.window == nullptr || lane.released) continue;
    if (!lane.window->abandoned() && !late) continue;
    lane.window->release_waits();
    lane.released = true;
  }
}

bool Wire::has_unread() const {
  return std::any_of(lanes_.begin(), lanes_.end(), [](const Lane& lane) {
    return lane.window != nullptr && lane.window->unread();
  });
}

std::optional<Wire::Broken> Wire::find_broken() {
  for (Lane& lane : lanes_) {
    if (lane.channel == nullptr || lane.channel->status().ok()) continue;
    for (Queue* queue : {&lane.sends, &lane.recvs}) {
      if (next_message(lane, *queue).index == kEnd) continue;
      return Broken{lane.peer, &lane.channel->status(), queue->complete.operation};
    }
  }
  return {};
}

std::vector<int> Wire::awaited_peers() {
  std::vector<int> peers;
  for (Lane& lane : lanes_) {
    const bool waits = next_message(lane, lane.sends).index != kEnd ||
                       next_message(lane, lane.recvs).index != kEnd;
    if (waits) peers.push_back(lane.peer);
  }
  return peers;
}

std::optional<Issue> Wire::first_incomplete(uint64_t number) {
  std::optional<Issue> first;
  const auto order = [](Issue one) { return std::pair(one.slice, one.index); };
  for (Lane& lane : lanes_) {
    if (lane.channel == nullptr) continue;
    for (Queue* queue : {&lane.sends, &lane.recvs}) {
      const Issue issue = next_message(lane, *queue);
      if (issue.index == kEnd || queue->complete.operation != number) continue;
      if (!first || order(issue) < order(*first)) first = issue;
    }
  }
  return first;
}

uint16_t Wire::track_of(const Lane& lane, bool sends) const {
  const auto place =
      std::find_if(lanes_.begin(), lanes_.end(), [&](const Lane& one) { return &one == &lane; });
  return static_cast<uint16_t>(Tracer::kFirstLaneTrack + 2 * (place - lanes_.begin()) +
                               (sends ? 0 : 1));
}

void Wire::name_tracks(std::map<uint16_t, std::string>& names) const {
  for (const Lane& lane : lanes_) {
    names[track_of(lane, true)] = format("send to rank %d", lane.peer);
    names[track_of(lane, false)] = format("recv from rank %d", lane.peer);
  }
}

}  // namespace hetccl::exec
