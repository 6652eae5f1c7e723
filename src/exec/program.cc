#include "exec/program.h"

#include <algorithm>
#include <set>

namespace hetccl::exec {
namespace {

using plan::Buffer;
using plan::Region;
using plan::Step;
using plan::StepKind;

Queue queue_of(StepKind kind) {
  switch (kind) {
    case StepKind::CclReduce:
    case StepKind::CclBroadcast:
    case StepKind::CclAllReduce:
    case StepKind::CclBarrier:
      return Queue::Ccl;
    case StepKind::Send:
      return Queue::Send;
    case StepKind::Recv:
      return Queue::Recv;
    case StepKind::Reduce:
    case StepKind::Copy:
      return Queue::Work;
  }
  return Queue::Work;
}

bool is_device(Queue queue) {
  return queue == Queue::Ccl || queue == Queue::Work;
}

std::set<uint32_t> scratch_blocks(const Step& step) {
  std::set<uint32_t> blocks;
  const auto note = [&](const Region& region) {
    if (region.buffer == Buffer::Scratch) blocks.insert(region.block);
  };
  for (const auto& shard : step.shards) {
    note(shard.send);
    note(shard.recv);
  }
  for (const auto& src : step.srcs) note(src);
  note(step.dst);
  return blocks;
}

// Steps of one queue start in order, but only streams also finish in order.
bool ordered(Queue before, Queue after) {
  return before == after && is_device(before);
}

// Records that `step` waits for `on`, unless the order of their queue says so already.
void add_wait(std::vector<StepInfo>& steps, std::vector<Wait>& waits, Queue queue, uint16_t on) {
  StepInfo& source = steps[on];
  if (ordered(source.queue, queue)) return;
  const bool by_flag = !is_device(source.queue) || !is_device(queue);
  waits.push_back({on, by_flag});
  (by_flag ? source.writes_flag : source.records_event) = true;
}

// What a kind of step must and may name.
bool is_well_formed(const Step& step) {
  switch (step.kind) {
    case StepKind::Send:
      return step.peer >= 0 && step.srcs.size() == 1;
    case StepKind::Recv:
      return step.peer >= 0;
    case StepKind::Copy:
    case StepKind::CclAllReduce:
      return step.srcs.size() == 1;
    case StepKind::Reduce:
      return !step.srcs.empty() && step.srcs.size() <= plan::kMaxReduceSources;
    case StepKind::CclReduce:
    case StepKind::CclBroadcast:
    case StepKind::CclBarrier:
      return true;
  }
  return false;
}

Status check_steps(const plan::RankPlan& plan) {
  for (size_t s = 0; s < plan.steps.size(); ++s) {
    const Step& step = plan.steps[s];
    if (!is_well_formed(step) || step.stage >= plan.stages) {
      return error(Code::InternalError,
                   "plan %s: step %zu (stage %d of %d, peer %d, %zu sources) is malformed",
                   plan.name.c_str(), s, step.stage, plan.stages, step.peer, step.srcs.size());
    }
    for (const uint16_t dep : step.deps) {
      if (dep >= s || plan.steps[dep].stage > step.stage) {
        return error(Code::InternalError, "plan %s: step %zu depends on step %d, which comes later",
                     plan.name.c_str(), s, dep);
      }
    }
  }
  return {};
}

void count_arithmetic(const plan::RankPlan& plan, Program& program) {
  for (const Step& step : plan.steps) {
    for (const auto& shard : step.shards) {
      program.uses_identity |= shard.send.buffer == Buffer::Identity;
    }
    if (step.kind != StepKind::Reduce) continue;
    ++program.n_reduces;
    program.most_sources = std::max(program.most_sources, step.srcs.size());
  }
}

// Of what steps write.
bool overlap(const Region& a, const Region& b) {
  const bool written = a.buffer == Buffer::Scratch || a.buffer == Buffer::Output;
  return written && a.buffer == b.buffer && a.block == b.block && a.begin < b.end &&
         b.begin < a.end;
}

bool same(const Region& a, const Region& b) {
  return overlap(a, b) && a.of == b.of && a.begin == b.begin && a.end == b.end;
}

// Whether the shard's data may be taken from where they arrived instead of from `region`: if that
// is in the output, the library itself copies them there.
bool passes_on(const plan::ShardRegion& shard, const Region& region) {
  if (!same(shard.send, region)) return false;
  return region.buffer == Buffer::Output ? same(shard.recv, region) && shard.receiver < 0
                                         : !overlap(shard.recv, region);
}

// Whether `step` does nothing with what `recv` brings but arithmetic on it, whole, copies, or a
// broadcast.
bool leaves_in_place(const Step& step, const Step& recv) {
  const auto apart = [&](const Region& region) { return !overlap(region, recv.dst); };
  const bool computes = step.kind == StepKind::Reduce || step.kind == StepKind::Copy;
  const bool takes = computes && recv.dst.buffer == Buffer::Scratch;
  return apart(step.dst) &&
         std::all_of(
             step.srcs.begin(), step.srcs.end(),
             [&](const Region& src) { return apart(src) || (takes && same(src, recv.dst)); }) &&
         std::all_of(step.shards.begin(), step.shards.end(), [&](const auto& shard) {
           return (apart(shard.send) && apart(shard.recv)) ||
                  (step.kind == StepKind::CclBroadcast && passes_on(shard, recv.dst));
         });
}

bool depends_on(const Step& step, size_t other) {
  return std::find(step.deps.begin(), step.deps.end(), other) != step.deps.end();
}

// Calls `visit(place)` for those of the step's sources, or of its shards, that are what `recv`
// brings.
template <typename Visit>
void for_each_reading(const Step& step, const Step& recv, Visit&& visit) {
  for (size_t i = 0; i < step.srcs.size(); ++i) {
    if (same(step.srcs[i], recv.dst)) visit(i);
  }
  for (size_t i = 0; i < step.shards.size(); ++i) {
    if (same(step.shards[i].send, recv.dst)) visit(i);
  }
}

void find_arrival(const plan::RankPlan& plan, uint16_t number, std::vector<StepInfo>& infos) {
  const Step& recv = plan.steps[number];
  bool by_library = false;
  size_t waiting = 0;
  std::vector<size_t> readers;
  for (size_t s = 0; s < plan.steps.size(); ++s) {
    const Step& step = plan.steps[s];
    if (s == number) continue;
    const bool waits = depends_on(step, number);
    // A message waits for flags, which what stays where it arrived has none of.
    if ((waits && !is_device(infos[s].queue)) || !leaves_in_place(step, recv)) return;
    waiting += waits ? 1 : 0;
    bool reads = false;
    for_each_reading(step, recv, [&](size_t) { reads = true; });
    if (!reads) continue;
    readers.push_back(s);
    by_library |= !step.shards.empty();
  }
  const bool one =
      readers.size() == 1 && waiting == 1 && depends_on(plan.steps[readers[0]], number);
  // What is not copied into the output here must be by what reads it.
  if (recv.dst.buffer == Buffer::Output && !one) return;
  infos[number].read_alone = true;
  infos[number].read_by_library = by_library;
  if (one) infos[number].reader = static_cast<int>(readers[0]);
  for (const size_t s : readers) {
    const Step& step = plan.steps[s];
    infos[s].arrivals.resize(std::max(step.srcs.size(), step.shards.size()), -1);
    for_each_reading(step, recv, [&](size_t place) { infos[s].arrivals[place] = number; });
  }
}

void find_arrivals(const plan::RankPlan& plan, std::vector<StepInfo>& infos) {
  const bool broadcasts = std::any_of(plan.steps.begin(), plan.steps.end(), [](const Step& step) {
    return step.kind == StepKind::CclBroadcast;
  });
  for (uint16_t r = 0; r < plan.steps.size(); ++r) {
    if (plan.steps[r].kind != StepKind::Recv) continue;
    const bool scratch = plan.steps[r].dst.buffer == Buffer::Scratch;
    if (scratch || broadcasts) find_arrival(plan, r, infos);
  }
}

// Where in `step` the result is that `send` sends, as a place in `departures`; -1 where `step` does
// anything else with it.
int place_of_result(const Step& step, const Region& sent) {
  int found = -1;
  for (const Region& src : step.srcs) {
    if (overlap(src, sent)) return -1;
  }
  for (size_t i = 0; i < step.shards.size(); ++i) {
    if (overlap(step.shards[i].send, sent)) return -1;
    if (!overlap(step.shards[i].recv, sent)) continue;
    const bool whole = step.kind == StepKind::CclReduce && same(step.shards[i].recv, sent);
    if (!whole || found >= 0) return -1;
    found = static_cast<int>(i);
  }
  if (!overlap(step.dst, sent)) return found;
  const bool computes = step.kind == StepKind::Reduce || step.kind == StepKind::Copy;
  return computes && same(step.dst, sent) ? 0 : -1;
}

bool touches(const Step& step, const Region& region) {
  const auto meets = [&](const Region& other) { return overlap(other, region); };
  return meets(step.dst) || std::any_of(step.srcs.begin(), step.srcs.end(), meets) ||
         std::any_of(step.shards.begin(), step.shards.end(),
                     [&](const auto& shard) { return meets(shard.send) || meets(shard.recv); });
}

// Its stage is the message's: so it starts when the message would, and waits for room as that did.
// Places are taken when the maker starts: in the order of the messages, if others of the same
// channel that come between are its own.
void find_departures(const plan::RankPlan& plan, std::vector<StepInfo>& infos) {
  for (size_t s = 0; s < plan.steps.size(); ++s) {
    const Step& send = plan.steps[s];
    if (send.kind != StepKind::Send || send.srcs[0].buffer != Buffer::Scratch) continue;
    size_t maker = plan.steps.size(), users = 0;
    for (size_t t = 0; t < plan.steps.size(); ++t) {
      if (t == s || !touches(plan.steps[t], send.srcs[0])) continue;
      ++users;
      maker = t;
    }
    if (users != 1 || maker > s || plan.steps[maker].stage != send.stage) continue;
    const int place = place_of_result(plan.steps[maker], send.srcs[0]);
    if (place < 0 || !depends_on(send, maker)) continue;
    bool in_order = true;
    for (size_t t = maker + 1; t < s; ++t) {
      const Step& other = plan.steps[t];
      const bool between = other.kind == StepKind::Send && other.peer == send.peer;
      if (between && infos[t].maker != static_cast<int>(maker)) in_order = false;
    }
    if (!in_order) continue;
    infos[s].maker = static_cast<int>(maker);
    infos[maker].makes.push_back(static_cast<uint16_t>(s));
    infos[maker].departures.resize(std::max<size_t>(1, plan.steps[maker].shards.size()), -1);
    infos[maker].departures[static_cast<size_t>(place)] = static_cast<int>(s);
  }
}

}  // namespace

Result<Program> Program::compile(plan::RankPlan plan) {
  HETCCL_TRY(check_steps(plan));
  Program program;
  const size_t n = plan.steps.size();
  program.steps.resize(n);
  std::set<int> peers;
  for (size_t s = 0; s < n; ++s) {
    const Step& step = plan.steps[s];
    program.steps[s].queue = queue_of(step.kind);
    if (!is_device(program.steps[s].queue)) peers.insert(step.peer);
  }
  program.peers.assign(peers.begin(), peers.end());

  std::vector<std::vector<uint16_t>> users(plan.scratch_blocks);
  for (size_t s = 0; s < n; ++s) {
    for (const uint32_t block : scratch_blocks(plan.steps[s])) {
      if (block >= users.size()) {
        return error(Code::InternalError, "plan %s: step %zu names scratch block %u of %zu",
                     plan.name.c_str(), s, block, users.size());
      }
      users[block].push_back(static_cast<uint16_t>(s));
    }
  }
  std::vector<bool> awaited(n, false);
  for (size_t s = 0; s < n; ++s) {
    StepInfo& info = program.steps[s];
    const Step& step = plan.steps[s];
    for (const uint16_t dep : step.deps) {
      add_wait(program.steps, info.deps, info.queue, dep);
      awaited[dep] = true;
    }
    std::set<uint16_t> recycled;
    for (const uint32_t block : scratch_blocks(step)) {
      recycled.insert(users[block].begin(), users[block].end());
    }
    for (const uint16_t user : recycled) {
      if (user != s || !is_device(info.queue)) {
        add_wait(program.steps, info.recycled, info.queue, user);
      }
    }
    if (!is_device(info.queue)) {
      info.needs_start = step.deps.empty();
      info.message = static_cast<uint16_t>(program.n_messages++);
      const auto peer = std::lower_bound(program.peers.begin(), program.peers.end(), step.peer);
      info.lane = static_cast<uint16_t>(peer - program.peers.begin());
    }
  }
  for (size_t s = 0; s < n; ++s) {
    StepInfo& info = program.steps[s];
    if (!is_device(info.queue) && !awaited[s]) info.joined = info.writes_flag = true;
  }
  find_arrivals(plan, program.steps);
  find_departures(plan, program.steps);
  count_arithmetic(plan, program);
  program.plan = std::move(plan);
  return program;
}

}  // namespace hetccl::exec
