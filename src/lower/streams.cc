// Decides which streams run a call, and forks them from and joins them to the user's stream.
#include <algorithm>
#include <map>

#include "lower/graph.h"

namespace hetccl::lower {
namespace {

Node boundary_node(Node::Section section, Opcode op) {
  Node node;
  node.code.op = op;
  node.code.queue = kUser;
  node.section = section;
  return node;
}

bool touches_caller(const Graph& graph, NodeId id) {
  bool touches = false;
  for_each_effect(
      graph.code(id), graph.target.local_rank, [&](const Operand& operand, bool, size_t) {
        const bool callers = operand.memory == Memory::Input || operand.memory == Memory::Output;
        touches |= callers && !(operand.region.begin == operand.region.end);
      });
  return touches;
}

// Whether a node copies a staged message to scratch: its receive has acquired the buffers of this
// call.
bool copies_from_staging(const Graph& graph, NodeId id) {
  const Instruction& code = graph.code(id);
  return code.op == Opcode::Copy && code.srcs[0].memory == Memory::Staging &&
         code.dst.memory == Memory::Scratch;
}

// Number of steps that need a stream: an empty message is only a header.
size_t steps_of_streams(const plan::RankPlan& plan) {
  return static_cast<size_t>(
      std::count_if(plan.steps.begin(), plan.steps.end(), [](const plan::Step& step) {
        const plan::Region* region = carried_by(step);
        return region == nullptr || !(region->begin == region->end);
      }));
}

struct QueueUse {
  NodeId first = kNoNode;  ///< in a slice
  NodeId last = kNoNode;
  bool waits_for_begin = false;  ///< must not begin before the user's stream has reached the call
};
std::map<QueueId, QueueUse> use_of_queues(const Graph& graph) {
  std::map<QueueId, QueueUse> uses;
  for (const NodeId id : body_of(graph)) {
    if (graph.code(id).op == Opcode::Locate) continue;
    QueueUse& use = uses[graph.code(id).queue];
    if (use.first == kNoNode) use.first = id;
    use.last = id;
    use.waits_for_begin |= !copies_from_staging(graph, id);
  }
  return uses;
}

// Whether a message must not begin before the user's stream has reached the call: it touches the
// caller's memory or memory that the previous call may still use, or it tells another rank of the
// call.
bool must_wait_for_begin(const Graph& graph, const MessageNodes& message) {
  if (message.via != Via::Direct) return false;
  if (message.send) return true;
  const Operand& dst = graph.code(message.post).dst;
  const bool empty = dst.region.begin == dst.region.end;
  return !empty && (dst.memory != Memory::Scratch || !graph.geometry.own_buffers);
}

}  // namespace

void merge_streams(Graph& graph) {
  if (!graph.geometry.short_call && steps_of_streams(graph.plan) > 1) return;
  for (Node& node : graph.nodes) {
    if (is_stream(node.code.queue)) node.code.queue = kUser;
  }
  if (!graph.geometry.short_call) return;
  // The call's end covers all reads: one signal instead of one per message.
  for (const MessageNodes& message : graph.messages) {
    if (message.acknowledge != kNoNode) graph.nodes[message.acknowledge].deps.clear();
  }
}

void join_streams(Graph& graph) {
  const std::map<QueueId, QueueUse> uses = use_of_queues(graph);
  graph.begin = graph.add(boundary_node(Node::Section::Prologue, Opcode::Signal));
  Node end = boundary_node(Node::Section::Epilogue, Opcode::Finish);
  for (const auto& [queue, use] : uses) {
    if (!is_stream(queue) || queue == kUser) continue;
    if (use.waits_for_begin) graph.nodes[use.first].deps.push_back({graph.begin, 0});
    end.deps.push_back({use.last, 0});
  }
  for (const MessageNodes& message : graph.messages) {
    if (message.via != Via::Direct) continue;
    if (must_wait_for_begin(graph, message)) {
      graph.nodes[message.post].deps.push_back({graph.begin, 0});
    }
    const bool awaited = std::any_of(graph.nodes.begin(), graph.nodes.end(), [&](const Node& node) {
      return node.live && depends_on(node, message.post);
    });
    // A send from scratch memory is complete before that memory is reused, so nothing else needs to
    // wait.
    const bool needed = !message.send || touches_caller(graph, message.post);
    if (!awaited && needed) end.deps.push_back({message.post, 0});
  }
  graph.end = graph.add(std::move(end));
}

void wait_for_slots(Graph& graph) {
  if (!graph.geometry.reuses_slots()) return;
  const uint32_t slots = graph.geometry.n_slots;
  const auto in_slots = [](const Operand& operand) {
    return operand.memory == Memory::Scratch || operand.memory == Memory::Staging;
  };
  struct Use {
    NodeId node;
    const Operand* operand;
    bool writes;
  };
  std::map<std::pair<Memory, uint32_t>, std::vector<Use>> uses;  // by place
  graph.for_each_effect_of_all([&](NodeId id, const Operand& operand, bool writes, size_t) {
    if (!in_slots(operand)) return;
    const bool scratch = operand.memory == Memory::Scratch;
    const uint32_t place =
        scratch ? operand.region.block - operand.region.run : uint32_t{operand.message};
    uses[{operand.memory, place}].push_back({id, &operand, writes});
  });
  for (const auto& [place, all] : uses) {
    for (const Use& writer : all) {
      for (const Use& user : all) {
        const bool ordered = writer.node == user.node && is_stream(graph.code(user.node).queue);
        if (!writer.writes || ordered || !overlap(*writer.operand, *user.operand)) continue;
        graph.nodes[writer.node].deps.push_back({user.node, slots});
      }
    }
  }
}

}  // namespace hetccl::lower
