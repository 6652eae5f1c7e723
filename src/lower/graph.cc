#include "lower/graph.h"

#include <algorithm>

#include "plan/schedule.h"

namespace hetccl::lower {
namespace {

using plan::Buffer;
using plan::Region;
using plan::Step;
using plan::StepKind;

// Distance in `order` between the nodes of two steps, so that other nodes fit between.
constexpr uint32_t kOrderStride = 4;

Operand operand_of(const Region& region) {
  constexpr Memory kMemories[] = {Memory::Input, Memory::Output, Memory::Scratch, Memory::Identity};
  return {kMemories[static_cast<size_t>(region.buffer)], region};
}

Opcode opcode_of(StepKind kind) {
  constexpr Opcode kByKind[] = {Opcode::CclReduce,   Opcode::CclBroadcast, Opcode::CclAllReduce,
                                Opcode::CclExchange, Opcode::CclBarrier,   Opcode::Send,
                                Opcode::Recv,        Opcode::Reduce,       Opcode::Copy};
  return kByKind[static_cast<size_t>(kind)];
}

bool needs_source(StepKind kind) {
  return kind == StepKind::CclAllReduce || kind == StepKind::Send || kind == StepKind::Reduce ||
         kind == StepKind::Copy;
}

// Checks the fields that a kind of step must and may use.
bool is_well_formed(const plan::RankPlan& plan, size_t index) {
  const Step& step = plan.steps[index];
  const bool message = step.kind == StepKind::Send || step.kind == StepKind::Recv;
  const size_t most = step.kind == StepKind::Reduce ? plan::kMaxReduceSources : 1;
  bool in_scratch = true;
  const auto look = [&](const Region& region) {
    in_scratch &= region.buffer != Buffer::Scratch ||
                  (region.run <= region.block && region.blocks <= plan.scratch_blocks &&
                   region.block <= plan.scratch_blocks - region.blocks);
  };
  look(step.dst);
  for (const Region& src : step.srcs) look(src);
  for (const auto& shard : step.shards) look(shard.send), look(shard.recv);
  for (const auto& transfer : step.transfers) look(transfer.region);
  return in_scratch && step.stage < plan.stages && (!message || step.peer >= 0) &&
         step.srcs.size() <= most && (!needs_source(step.kind) || !step.srcs.empty()) &&
         std::all_of(
             step.deps.begin(), step.deps.end(),
             [&](uint16_t dep) { return dep < index && plan.steps[dep].stage <= step.stage; });
}

QueueId queue_of(Opcode op, size_t lane) {
  if (op == Opcode::Send) return lane_queue(lane, QueueKind::Send);
  if (op == Opcode::Recv) return lane_queue(lane, QueueKind::Recv);
  return stream_queue(info_of(op).is(OpcodeInfo::kCollective) ? QueueKind::Ccl : QueueKind::Work);
}

bool is_by_host(const Graph& graph, const Step& step) {
  const bool encoded =
      step.dst.encoded || std::any_of(step.srcs.begin(), step.srcs.end(),
                                      [](const Region& src) { return src.encoded; });
  return (graph.geometry.by_host & arithmetic_of(step.average, step.scale, encoded)) != 0;
}

Instruction instruction_of(const Graph& graph, uint16_t index) {
  const Step& step = graph.plan.steps[index];
  Instruction code{.op = opcode_of(step.kind), .stage = step.stage, .step = index};
  if (code.op == Opcode::Reduce && is_by_host(graph, step)) code.op = Opcode::HostReduce;
  code.queue = queue_of(code.op, graph.target.lane_of(step.peer));
  code.lag = plan::lag(step.stage, graph.plan.stages, graph.geometry.depth);
  for (const auto& shard : step.shards) {
    code.shards.push_back(
        {shard.root, operand_of(shard.send), operand_of(shard.recv), shard.receiver});
  }
  for (const auto& transfer : step.transfers) {
    code.transfers.push_back({transfer.peer, transfer.send, operand_of(transfer.region)});
  }
  for (const Region& src : step.srcs) code.srcs.push_back(operand_of(src));
  code.dst = operand_of(step.dst);
  code.average = step.average;
  code.scale = step.scale;
  code.apart = step.apart;
  code.whole = step.whole;
  return code;
}

}  // namespace

NodeId Graph::add(Node node) {
  nodes.push_back(std::move(node));
  return static_cast<NodeId>(nodes.size() - 1);
}

void Graph::replace_dep(NodeId old, NodeId now) {
  for (Node& node : nodes) {
    for (Dep& dep : node.deps) {
      if (dep.node == old) dep.node = now;
    }
  }
}

bool overlap(const Operand& a, const Operand& b) {
  if (a.memory != b.memory) return false;
  if (a.memory == Memory::Staging || a.memory == Memory::Ring) return a.message == b.message;
  // A run counts as a whole: in a shorter slice its blocks move.
  return a.region.block - a.region.run == b.region.block - b.region.run &&
         a.region.begin < b.region.end && b.region.begin < a.region.end;
}

bool same(const Operand& a, const Operand& b) {
  return a.memory == b.memory && a.message == b.message && a.region.block == b.region.block &&
         a.region.of == b.region.of && a.region.begin == b.region.begin &&
         a.region.end == b.region.end && a.region.run == b.region.run &&
         a.region.blocks == b.region.blocks;
}

bool depends_on(const Node& node, NodeId other) {
  return std::any_of(node.deps.begin(), node.deps.end(),
                     [&](const Dep& dep) { return dep.node == other; });
}

bool comes_before(const Node& a, const Node& b) {
  return std::pair(a.code.stage, a.order) < std::pair(b.code.stage, b.order);
}

std::vector<NodeId> body_of(const Graph& graph) {
  std::vector<NodeId> body;
  for (NodeId id = 0; id < graph.nodes.size(); ++id) {
    const Node& node = graph.nodes[id];
    if (node.live && node.section == Node::Section::Body) body.push_back(id);
  }
  std::sort(body.begin(), body.end(),
            [&](NodeId a, NodeId b) { return comes_before(graph.nodes[a], graph.nodes[b]); });
  return body;
}

Result<Graph> build_graph(const plan::RankPlan& plan, const Target& target,
                          const Geometry& geometry) {
  // A step has at most four nodes, and each of them two syncs.
  const size_t most = std::max(8 * plan.steps.size() + 8, kStreams + 3 * target.lanes.size());
  if (most > kNoNode) {
    return error(ErrorCode::Unsupported,
                 "plan %s: %zu steps with %zu peers are too many to lower: use fewer or larger "
                 "clusters",
                 plan.name.c_str(), plan.steps.size(), target.lanes.size());
  }
  Graph graph{plan, target, geometry};
  for (size_t s = 0; s < plan.steps.size(); ++s) {
    if (!is_well_formed(plan, s)) {
      return error(ErrorCode::InternalError, "plan %s: step %zu of %zu is malformed",
                   plan.name.c_str(), s, plan.steps.size());
    }
    const auto index = static_cast<uint16_t>(s);
    Node node{instruction_of(graph, index), kOrderStride * index};
    for (const uint16_t dep : plan.steps[s].deps) node.deps.push_back({dep, 0});
    const Opcode op = node.code.op;
    if (op == Opcode::Send || op == Opcode::Recv) {
      node.code.message = static_cast<uint16_t>(graph.messages.size());
      graph.messages.push_back({.send = op == Opcode::Send, .post = index});
    }
    graph.add(std::move(node));
  }
  return graph;
}

}  // namespace hetccl::lower
