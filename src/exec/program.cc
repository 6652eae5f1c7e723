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

bool overlap(const Region& a, const Region& b) {
  return a.buffer == Buffer::Scratch && b.buffer == Buffer::Scratch && a.block == b.block &&
         a.begin < b.end && b.begin < a.end;
}

bool same(const Region& a, const Region& b) {
  return overlap(a, b) && a.of == b.of && a.begin == b.begin && a.end == b.end;
}

// Whether `step` does nothing with what `recv` brings but arithmetic on it, whole, or copies.
bool leaves_in_place(const Step& step, const Step& recv) {
  const auto apart = [&](const Region& region) { return !overlap(region, recv.dst); };
  const auto apart_or_whole = [&](const Region& region) {
    return apart(region) || same(region, recv.dst);
  };
  const bool shards = std::all_of(step.shards.begin(), step.shards.end(), [&](const auto& shard) {
    return apart(shard.send) && apart(shard.recv);
  });
  const bool computes = step.kind == StepKind::Reduce || step.kind == StepKind::Copy;
  return shards && apart(step.dst) &&
         (computes ? std::all_of(step.srcs.begin(), step.srcs.end(), apart_or_whole)
                   : std::all_of(step.srcs.begin(), step.srcs.end(), apart));
}

bool depends_on(const Step& step, size_t other) {
  return std::find(step.deps.begin(), step.deps.end(), other) != step.deps.end();
}

void find_arrivals(const plan::RankPlan& plan, std::vector<StepInfo>& infos) {
  for (size_t r = 0; r < plan.steps.size(); ++r) {
    const Step& recv = plan.steps[r];
    if (recv.kind != StepKind::Recv || recv.dst.buffer != Buffer::Scratch) continue;
    infos[r].read_alone = true;
    for (size_t s = 0; s < plan.steps.size(); ++s) {
      const Step& step = plan.steps[s];
      // A message waits for flags, which what stays where it arrived has none of.
      const bool awaits = !is_device(infos[s].queue) && depends_on(step, r);
      if (s != r && (awaits || !leaves_in_place(step, recv))) infos[r].read_alone = false;
    }
    if (!infos[r].read_alone) continue;
    size_t readers = 0, waiting = 0;
    for (size_t s = 0; s < plan.steps.size(); ++s) {
      const Step& step = plan.steps[s];
      bool reads = false;
      for (size_t i = 0; i < step.srcs.size(); ++i) {
        if (!same(step.srcs[i], recv.dst)) continue;
        infos[s].arrivals.resize(step.srcs.size(), -1);
        infos[s].arrivals[i] = static_cast<int>(r);
        reads = true;
      }
      const bool waits = depends_on(step, r);
      readers += reads ? 1 : 0;
      waiting += waits ? 1 : 0;
      if (reads && waits) infos[r].reader = static_cast<int>(s);
    }
    if (readers != 1 || waiting != 1) infos[r].reader = -1;
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
  count_arithmetic(plan, program);
  program.plan = std::move(plan);
  return program;
}

}  // namespace hetccl::exec
