// Which streams run a call, from where they begin to where the user's goes on.
#include <algorithm>
#include <map>

#include "lower/graph.h"

namespace hetccl::lower {
namespace {

constexpr QueueId kUser = stream_queue(QueueKind::User);

Node bound(Node::Section section, Opcode op) {
  Node node;
  node.code.op = op;
  node.code.queue = kUser;
  node.section = section;
  return node;
}

// Of each queue the first and the last node of a slice that does something.
struct Ends {
  NodeId first = kNoNode, last = kNoNode;
};
std::map<QueueId, Ends> ends_of_queues(const Graph& graph) {
  std::map<QueueId, Ends> ends;
  for (const NodeId id : body_of(graph)) {
    if (graph.code(id).op == Opcode::Locate) continue;
    Ends& queue = ends[graph.code(id).queue];
    if (queue.first == kNoNode) queue.first = id;
    queue.last = id;
  }
  return ends;
}

bool touches_callers_memory(const MessageNodes& message) {
  return message.route == Route::Direct;
}

}  // namespace

void merge_streams(Graph& graph) {
  if (!graph.geometry.short_call) return;
  for (Node& node : graph.nodes) {
    if (is_stream(node.code.queue)) node.code.queue = kUser;
  }
  // The end of the call tells of all reads: one signal instead of one for each message.
  for (const MessageNodes& message : graph.messages) {
    if (message.read != kNoNode) graph.nodes[message.read].deps.clear();
  }
}

void join_streams(Graph& graph) {
  const std::map<QueueId, Ends> ends = ends_of_queues(graph);
  graph.begin = graph.add(bound(Node::Section::Prologue, Opcode::Signal));
  Node end = bound(Node::Section::Epilogue, Opcode::Finish);
  for (const auto& [queue, nodes] : ends) {
    if (!is_stream(queue) || queue == kUser) continue;
    graph.nodes[nodes.first].deps.push_back({graph.begin, 0});
    end.deps.push_back({nodes.last, 0});
  }
  for (const MessageNodes& message : graph.messages) {
    if (!touches_callers_memory(message)) continue;
    // The first of its lane waits for all that follow.
    const NodeId first = ends.at(graph.code(message.post).queue).first;
    if (!depends_on(graph.nodes[first], graph.begin)) {
      graph.nodes[first].deps.push_back({graph.begin, 0});
    }
    const bool awaited =
        std::any_of(graph.nodes.begin(), graph.nodes.end(), [&](const Node& node) {
          return node.live && depends_on(node, message.post);
        });
    if (!awaited) end.deps.push_back({message.post, 0});
  }
  graph.end = graph.add(std::move(end));
}

void wait_for_slots(Graph& graph) {
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
    uses[{operand.memory, scratch ? operand.region.block : operand.message}].push_back(
        {id, &operand, writes});
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
  for (Node& node : graph.nodes) {
    std::sort(node.deps.begin(), node.deps.end());
    node.deps.erase(std::unique(node.deps.begin(), node.deps.end()), node.deps.end());
  }
}

}  // namespace hetccl::lower
