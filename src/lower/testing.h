// For lower's unit tests: small plans, and what their Code waits for, as text.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "lower/graph.h"
#include "lower/lower.h"

namespace hetccl::lower::testing {

using plan::Buffer;
using plan::RankPlan;
using plan::Region;
using plan::Step;
using plan::StepKind;

inline constexpr size_t kRing = 64 << 10;

inline Region scratch(uint32_t block) {
  return {Buffer::Scratch, block};
}

inline Step step(StepKind kind, uint16_t stage, std::vector<uint16_t> deps) {
  Step result;
  result.kind = kind;
  result.stage = stage;
  result.deps = std::move(deps);
  return result;
}

inline Step message(StepKind kind, uint16_t stage, std::vector<uint16_t> deps, int peer,
                    Region region) {
  Step result = step(kind, stage, std::move(deps));
  result.peer = peer;
  if (kind == StepKind::Send) result.srcs = {region};
  if (kind == StepKind::Recv) result.dst = region;
  return result;
}

/// 0: the cluster reduces into scratch 0; 1: sends it to rank 5; 2: receives scratch 1 from rank 3;
/// 3: reduces both into scratch 2; 4: the cluster broadcasts scratch 2.
inline RankPlan exchange() {
  RankPlan plan;
  plan.name = "test";
  plan.scratch_blocks = 3;
  plan.stages = 4;
  Step reduce = step(StepKind::CclReduce, 0, {});
  reduce.shards = {{0, {}, scratch(0)}};
  Step sum = step(StepKind::Reduce, 2, {0, 2});
  sum.srcs = {scratch(0), scratch(1)};
  sum.dst = scratch(2);
  Step broadcast = step(StepKind::CclBroadcast, 3, {3});
  broadcast.shards = {{0, scratch(2), {Buffer::Output, 0}}};
  plan.steps = {reduce, message(StepKind::Send, 1, {0}, 5, scratch(0)),
                message(StepKind::Recv, 1, {}, 3, scratch(1)), sum, broadcast};
  return plan;
}

/// `exchange`, but the message to rank 5 alone uses what the cluster has reduced.
inline RankPlan sends_all_it_reduces() {
  RankPlan plan = exchange();
  plan.steps[1].stage = 0;
  plan.steps[3].srcs = {scratch(1)};
  return plan;
}

/// A message goes to each peer straight through the transport, through staging memory, or through
/// a ring.
inline constexpr Reach kDirect{};
inline constexpr Reach kStaged{.direct = false};
inline constexpr Reach kShared{.ring_bytes = kRing};
inline constexpr Reach kRegistered{.registered = true};

/// Calls of one slice, or of more than there are slots, 4 KiB each.
inline constexpr uint64_t kOneSlice = 1024, kEightSlices = 8 * 1024;

/// A plan, and what it is lowered for. The graphs it gives refer to it.
struct Job {
  /// All lanes are like `reach`.
  explicit Job(RankPlan made, Reach reach = kDirect, uint64_t count = kEightSlices)
      : plan(std::move(made)) {
    for (const int peer : peers_of(plan)) {
      reach.peer = peer;
      target.lanes.push_back(reach);
    }
    cut(count);
  }
  /// Sets the geometry anew: after a change of `target`.
  void cut(uint64_t count) {
    geometry =
        geometry_of(plan, target, {.type = DataType::Float32, .count = count, .choice = {4096, 3}});
  }
  [[nodiscard]] Graph graph() const { return build_graph(plan, target, geometry).value(); }
  [[nodiscard]] Code code() const { return lower(plan, target, geometry).value(); }

  RankPlan plan;
  Target target;
  Geometry geometry;
};

/// The first instruction that does `op` for a step of the plan; kEnd: none does.
inline uint32_t find(const Code& code, Opcode op, uint16_t of_step) {
  for (uint32_t i = code.body; i < code.epilogue; ++i) {
    if (code.list[i].op == op && code.list[i].step == of_step) return i;
  }
  return kEnd;
}

inline uint32_t end_of(const Code& code) {
  return static_cast<uint32_t>(code.list.size());
}
inline size_t count_of(const Code& code, Opcode op) {
  size_t count = 0;
  for (const Instruction& one : code.list) count += one.op == op ? 1 : 0;
  return count;
}

/// "3f 4e-4": by flag for the end of step 3, by event for that of step 4 four slices before.
inline std::string text_of(const Code& code, const Instruction& wait) {
  if (wait.sync == kStarted) return "start";
  if (wait.sync == kFinished) return "finish";
  const Sync& sync = code.syncs[wait.sync];
  const std::string back = wait.back == 0 ? "" : "-" + std::to_string(wait.back);
  return std::to_string(sync.step) + (sync.event ? "e" : "f") + back;
}

/// What instruction `index` waits for.
inline std::string waits_of(const Code& code, uint32_t index) {
  std::string text;
  for (uint32_t i = index; i > code.body; --i) {
    const Instruction& one = code.list[i - 1];
    if (one.op == Opcode::Reserve) continue;
    if (one.op != Opcode::Wait || one.queue != code.list[index].queue) break;
    text = text_of(code, one) + (text.empty() ? "" : " ") + text;
  }
  return text;
}

/// "wait ccl; signal user": a section of the list.
inline std::string text_of(const Code& code, uint32_t begin, uint32_t end) {
  std::string text;
  for (uint32_t i = begin; i < end; ++i) {
    const Instruction& one = code.list[i];
    text += (text.empty() ? "" : "; ") + std::string(info_of(one.op).name) + " " +
            name_of(code, one.queue);
  }
  return text;
}

/// "0 1-4": the nodes for whose end node `id` waits, in its slice and four before.
inline std::string deps_of(const Graph& graph, NodeId id) {
  std::string text;
  for (const Dep dep : graph.nodes[id].deps) {
    text += (text.empty() ? "" : " ") + std::to_string(dep.node) +
            (dep.back == 0 ? "" : "-" + std::to_string(dep.back));
  }
  return text;
}

/// Who, on the streams, reads (`writes`: writes) message `number` where the transport or the other
/// end reaches it: "copy", "reduce", "ccl_reduce".
inline std::string users_of(const Code& code, uint16_t number, bool writes) {
  std::string text;
  for (const Instruction& one : code.list) {
    if (!is_stream(one.queue)) continue;
    for_each_effect(one, 0, [&](const Operand& operand, bool is_write, size_t) {
      const bool there = operand.memory == Memory::Ring || operand.memory == Memory::Staging;
      if (!there || operand.message != number || is_write != writes) return;
      text += (text.empty() ? "" : " ") + std::string(info_of(one.op).name);
    });
  }
  return text;
}
inline std::string readers_of(const Code& code, uint16_t number) {
  return users_of(code, number, false);
}
inline std::string writers_of(const Code& code, uint16_t number) {
  return users_of(code, number, true);
}

}  // namespace hetccl::lower::testing
