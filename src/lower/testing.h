// Helpers for lower's unit tests: small plans, and the waits of their Code as text.
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

/// Step 0 reduces in the cluster into scratch 0; 1 sends that to rank 5; 2 receives scratch 1 from
/// rank 3; 3 reduces both into scratch 2; 4 broadcasts scratch 2 in the cluster.
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

/// `exchange`, but only the message to rank 5 uses the cluster's sum.
inline RankPlan sends_all_it_reduces() {
  RankPlan plan = exchange();
  plan.steps[1].stage = 0;
  plan.steps[3].srcs = {scratch(1)};
  return plan;
}

/// Reach of every peer: straight through the transport, through staging memory, or through a ring.
inline constexpr Reach kDirect{};
inline constexpr Reach kStaged{.direct = false};
inline constexpr Reach kShared{.ring_bytes = kRing};
inline constexpr Reach kRegistered{.registered = true};

/// Elements of calls with one slice, and with more slices than slots, 4 KiB each.
inline constexpr uint64_t kOneSlice = 1024, kEightSlices = 8 * 1024;

/// A plan and its lowering target. Graphs that it returns refer to it.
struct Job {
  /// All lanes have the properties of `reach`.
  explicit Job(RankPlan made, Reach reach = kDirect, uint64_t count = kEightSlices)
      : plan(std::move(made)) {
    for (const int peer : peers_of(plan)) {
      reach.peer = peer;
      target.lanes.push_back(reach);
    }
    cut(count);
  }
  /// Recomputes the geometry, after a change of `target` for example.
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

/// Index of the first instruction with `op` for a step of the plan; kEnd if there is none.
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

/// "3f 4e-4": waits by flag for step 3, and by event for step 4 four slices earlier.
inline std::string text_of(const Code& code, const Instruction& wait) {
  if (wait.sync == kStarted) return "start";
  if (wait.sync == kFinished) return "finish";
  const Sync& sync = code.syncs[wait.sync];
  const std::string back = wait.back == 0 ? "" : "-" + std::to_string(wait.back);
  return std::to_string(sync.step) + (sync.event ? "e" : "f") + back;
}

/// The waits of instruction `index`.
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

/// A section of the list: "wait ccl; signal user".
inline std::string text_of(const Code& code, uint32_t begin, uint32_t end) {
  std::string text;
  for (uint32_t i = begin; i < end; ++i) {
    const Instruction& one = code.list[i];
    text += (text.empty() ? "" : "; ") + std::string(info_of(one.op).name) + " " +
            name_of(code, one.queue);
  }
  return text;
}

/// "0 1-4": the nodes that `id` depends on, in the same slice and four slices earlier.
inline std::string deps_of(const Graph& graph, NodeId id) {
  std::string text;
  for (const Dep dep : graph.nodes[id].deps) {
    text += (text.empty() ? "" : " ") + std::to_string(dep.node) +
            (dep.back == 0 ? "" : "-" + std::to_string(dep.back));
  }
  return text;
}

/// Names the stream instructions that read (`writes`: write) message `number` in the place that the
/// transport or the other end accesses: "copy", "reduce", "ccl_reduce".
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
