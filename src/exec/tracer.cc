#include "exec/tracer.h"

#include <algorithm>

namespace hetccl::exec {
namespace {

using lower::Instruction;
using lower::QueueKind;

// Returns the track of an instruction on a stream.
uint32_t track_of(const Operation& operation, const Instruction& code) {
  if (operation.is_message()) {
    const Message& message = operation.message;
    return Tracer::peer_track(message.peer, Tracer::PeerTrack::Streams, message.send);
  }
  switch (lower::kind_of(code.queue)) {
    case QueueKind::Out:
      return Tracer::kOutTrack;
    case QueueKind::In:
      return Tracer::kInTrack;
    default:
      return lower::info_of(code.op).is(lower::OpcodeInfo::kCollective) ? Tracer::kCclTrack
                                                                        : Tracer::kWorkTrack;
  }
}

size_t at(const Operation& operation, size_t index, uint32_t slice) {
  return index * operation.n_slices + slice;
}

}  // namespace

Tracer::Seen& Tracer::seen(const Operation& operation) {
  Seen& found = in_flight_[&operation];
  const size_t n = operation.code->list.size();
  if (found.slices.size() != n) {
    found.slices.assign(n, 0);
    found.posted.assign(n * operation.n_slices, TimePoint{});
    found.told.assign(operation.code->syncs.size() * operation.n_slices, TimePoint{});
  }
  return found;
}

void Tracer::look(Operation& operation, TimePoint now) {
  Seen& state = seen(operation);
  if (state.started == TimePoint{} && operation.started().reached(1)) state.started = now;
  note_stream_ends(state, operation, now);
}

void Tracer::note_stream_ends(Seen& state, Operation& operation, TimePoint now) {
  const lower::Code& code = *operation.code;
  for (uint32_t i = code.body; i < code.epilogue; ++i) {
    const Instruction& one = code.list[i];
    if (!lower::is_stream(one.queue) || one.done == lower::kNoSync) continue;
    const uint32_t word = operation.flag(one.done).word.load(std::memory_order_acquire);
    const uint32_t done = std::min(word, operation.n_slices);  // an aborted flag is larger
    for (uint32_t& k = state.slices[i]; k < done; ++k) {
      end(state, operation, {k, i}, track_of(operation, one), ready_time(state, operation, {k, i}),
          now);
    }
  }
}

// Returns when the last of its dependencies ended, as far as seen.
TimePoint Tracer::ready_time(const Seen& state, const Operation& operation, lower::Issue issue) {
  const lower::Code& code = *operation.code;
  TimePoint ready = state.started;
  for (uint32_t i = issue.index; i > code.body && code.list[i - 1].step == code.list[i].step; --i) {
    const Instruction& one = code.list[i - 1];
    if (one.op != lower::Opcode::Wait || code.syncs[one.sync].once) continue;
    const uint32_t count = operation.awaited(one, issue.slice);
    if (count > 0) ready = std::max(ready, state.told[at(operation, one.sync, count - 1)]);
  }
  return ready;
}

void Tracer::post(Operation& operation, lower::Issue issue, TimePoint now) {
  seen(operation).posted[at(operation, issue.index, issue.slice)] = now;
}

void Tracer::complete(Operation& operation, lower::Issue issue, uint32_t track, TimePoint now) {
  Seen& state = seen(operation);
  end(state, operation, issue, track, state.posted[at(operation, issue.index, issue.slice)], now);
}

// Records that a stream has signalled the end of an instruction.
void Tracer::note_signals(Seen& state, const Operation& operation, lower::Issue issue,
                          TimePoint now) {
  const lower::Code& code = *operation.code;
  const lower::SyncId done = code.list[issue.index].done;
  if (done != lower::kNoSync) state.told[at(operation, done, issue.slice)] = now;
  for (uint32_t i = issue.index + 1; i < code.epilogue; ++i) {
    const Instruction& one = code.list[i];
    if (one.op != lower::Opcode::Signal) return;
    state.told[at(operation, one.sync, issue.slice)] = now;
  }
}

// Adds a span from the later of `ready` and the end of the track's previous span, until now.
void Tracer::end(Seen& state, const Operation& operation, lower::Issue issue, uint32_t track,
                 TimePoint ready, TimePoint now) {
  const Instruction& code = operation.code->list[issue.index];
  note_signals(state, operation, issue, now);
  const TimePoint free = std::min(std::max(track_ends_[track], state.started), now);
  const TimePoint begin = std::min(std::max(free, ready), now);
  TraceSpan span{"waiting", track, code.step, issue.slice, operation.call.sequence, free, begin};
  if (begin > free) add(span);
  span.name = lower::info_of(code.op).name;
  span.begin = begin;
  span.end = now;
  add(span);
  track_ends_[track] = now;
}

void Tracer::retire(Operation& operation, TimePoint now) {
  look(operation, now);
  const Call& call = operation.call;
  TraceOperation& ended =
      operations_.emplace_back(call.sequence, call.signature, std::nullopt, call.launched,
                               in_flight_.at(&operation).started, now);
  if (operation.is_message()) ended.message = operation.message;
  if (operations_.size() > kOperations) operations_.pop_front();
  in_flight_.erase(&operation);
}

std::map<uint32_t, std::string> Tracer::tracks() const {
  static constexpr const char* kStreams[] = {"ccl", "work", "out", "in"};
  static constexpr const char* kOfPeers[] = {"send to",      "recv from",  "message to",
                                             "message from", "streams to", "streams from"};
  std::map<uint32_t, std::string> names;
  for (const auto& [track, end] : track_ends_) {
    const uint32_t of_peer = track - peer_track(0, PeerTrack::Collectives, true);
    names[track] = track < std::size(kStreams)
                       ? kStreams[track]
                       : format("%s rank %u", kOfPeers[of_peer % std::size(kOfPeers)],
                                of_peer / static_cast<uint32_t>(std::size(kOfPeers)));
  }
  return names;
}

void Tracer::add(const TraceSpan& span) {
  spans_.push_back(span);
  if (spans_.size() <= kSpans) return;
  spans_.pop_front();
  ++forgotten_;
}

}  // namespace hetccl::exec
