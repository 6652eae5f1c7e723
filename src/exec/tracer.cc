#include "exec/tracer.h"

#include <algorithm>

namespace hetccl::exec {
namespace {

using plan::StepKind;
using Kind = TraceSpan::Kind;

Kind kind_of(StepKind kind) {
  switch (kind) {
    case StepKind::Reduce:
      return Kind::Reduce;
    case StepKind::Copy:
      return Kind::Copy;
    case StepKind::Send:
      return Kind::Send;
    case StepKind::Recv:
      return Kind::Recv;
    default:
      return Kind::Ccl;
  }
}

bool is_device(Queue queue) {
  return queue == Queue::Ccl || queue == Queue::Work;
}

size_t at(const Operation& operation, plan::Issue issue) {
  return issue.step * static_cast<size_t>(operation.n_slices) + issue.slice;
}

}  // namespace

Tracer::Seen& Tracer::seen(uint64_t number, const Operation& operation) {
  if (in_flight_.empty()) first_ = number;
  while (first_ + in_flight_.size() <= number) in_flight_.emplace_back();
  Seen& found = in_flight_[number - first_];
  const size_t n = operation.program->steps.size();
  if (found.slices.size() != n) {
    found.slices.assign(n, 0);
    found.posted.assign(n * operation.n_slices, TimePoint{});
    found.done.assign(n * operation.n_slices, TimePoint{});
  }
  return found;
}

void Tracer::look(uint64_t number, Operation& operation, TimePoint now) {
  Seen& state = seen(number, operation);
  if (state.started == TimePoint{} && operation.started().reached(1)) state.started = now;
  look_at_steps(state, operation, now);
}

void Tracer::look_at_steps(Seen& state, Operation& operation, TimePoint now) {
  const Program& program = *operation.program;
  for (uint16_t s = 0; s < program.steps.size(); ++s) {
    const StepInfo& info = program.steps[s];
    if (!is_device(info.queue)) continue;
    const uint32_t word = operation.done_of(s).word.load(std::memory_order_acquire);
    const uint32_t done = std::min(word, operation.n_slices);  // an aborted flag is larger
    for (uint32_t& k = state.slices[s]; k < done; ++k) {
      TimePoint ready = state.started;
      for (const uint16_t dep : program.plan.steps[s].deps) {
        ready = std::max(ready, state.done[at(operation, {k, dep})]);
      }
      const uint16_t track = info.queue == Queue::Ccl ? kCclTrack : kWorkTrack;
      end_step(state, operation, {k, s}, track, ready, now);
    }
  }
}

void Tracer::post(uint64_t number, Operation& operation, plan::Issue issue, TimePoint now) {
  seen(number, operation).posted[at(operation, issue)] = now;
}

void Tracer::complete(uint64_t number, Operation& operation, plan::Issue issue, uint16_t track,
                      TimePoint now) {
  Seen& state = seen(number, operation);
  end_step(state, operation, issue, track, state.posted[at(operation, issue)], now);
}

// The step ran from when it could until now, but not before its track's previous one had ended.
void Tracer::end_step(Seen& state, const Operation& operation, plan::Issue issue, uint16_t track,
                      TimePoint ready, TimePoint now) {
  state.done[at(operation, issue)] = now;
  const TimePoint free = std::min(std::max(track_ends_[track], state.started), now);
  const TimePoint begin = std::min(std::max(free, ready), now);
  TraceSpan span{Kind::Waiting,           track, issue.step, issue.slice,
                 operation.call.sequence, free,  begin};
  if (begin > free) add(span);
  span.kind = kind_of(operation.program->plan.steps[issue.step].kind);
  span.begin = begin;
  span.end = now;
  add(span);
  track_ends_[track] = now;
}

void Tracer::retire(uint64_t number, Operation& operation, TimePoint now) {
  look(number, operation, now);
  Seen& state = seen(number, operation);
  // A direct call shows by its end alone.
  if (operation.program->is_direct() && state.slices[0] == 0) {
    end_step(state, operation, {0, 0}, kCclTrack, state.started, now);
  }
  operations_.push_back({operation.call.sequence, operation.call.signature, operation.call.launched,
                         state.started, now});
  if (operations_.size() > kOperations) operations_.pop_front();
  while (!in_flight_.empty() && first_ <= number) {
    in_flight_.pop_front();
    ++first_;
  }
}

void Tracer::add(const TraceSpan& span) {
  spans_.push_back(span);
  if (spans_.size() <= kSpans) return;
  spans_.pop_front();
  ++forgotten_;
}

}  // namespace hetccl::exec
