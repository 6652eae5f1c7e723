// Zero-copy send: the node that produces data that is only sent writes it into the ring. Ring
// places follow the order of messages, so the producer reserves the place when it starts, unless
// another node of the lane reserves one between the producer and the copy.
#include <algorithm>
#include <optional>

#include "lower/graph.h"

namespace hetccl::lower {
namespace {

// Returns the only node, besides the copy out, that touches the sent region, if it writes all of
// it.
std::optional<NodeId> find_maker(const Graph& graph, const MessageNodes& message) {
  const Operand& sent = graph.code(message.copy).srcs[0];
  std::optional<NodeId> maker;
  bool whole = true;
  graph.for_each_effect_of_all([&](NodeId id, const Operand& operand, bool writes, size_t) {
    if (id == message.copy || !overlap(operand, sent)) return;
    const Opcode op = graph.code(id).op;
    const bool makes = op == Opcode::CclReduce || op == Opcode::Reduce || op == Opcode::Copy;
    whole = whole && !maker && writes && makes && same(operand, sent);
    maker = id;
  });
  if (!maker || !whole) return {};
  const Node &made = graph.nodes[*maker], &copy = graph.nodes[message.copy];
  const bool starts_as_late = made.code.stage == copy.code.stage && comes_before(made, copy);
  const bool waits_for_it_alone = copy.deps == std::vector<Dep>{{*maker, 0}};
  return starts_as_late && waits_for_it_alone ? maker : std::nullopt;
}

bool keeps_order(const Graph& graph, const MessageNodes& message, NodeId maker) {
  const QueueId queue = graph.code(message.post).queue;
  const Node &made = graph.nodes[maker], &copy = graph.nodes[message.copy];
  return std::none_of(graph.nodes.begin(), graph.nodes.end(), [&](const Node& other) {
    if (!other.live || &other == &copy || &other == &made) return false;
    const bool same_lane = std::any_of(
        other.reserves.begin(), other.reserves.end(),
        [&](uint16_t number) { return graph.code(graph.messages[number].post).queue == queue; });
    return same_lane && comes_before(made, other) && comes_before(other, copy);
  });
}

void elide_copy(Graph& graph, uint16_t number, NodeId id) {
  MessageNodes& message = graph.messages[number];
  Node &copy = graph.nodes[message.copy], &maker = graph.nodes[id];
  const Operand sent = copy.code.srcs[0], place = copy.code.dst;
  if (maker.code.shards.empty()) maker.code.dst = place;
  for (Shard& shard : maker.code.shards) {
    if (shard.root == graph.target.local_rank && same(shard.recv, sent)) shard.recv = place;
  }
  maker.reserves.push_back(number);
  graph.replace_dep(message.copy, id);
  copy.live = false;
  message.copy = kNoNode;
}

}  // namespace

void make_in_ring(Graph& graph) {
  if (!graph.target.host_memory) return;
  for (uint16_t number = 0; number < graph.messages.size(); ++number) {
    const MessageNodes& message = graph.messages[number];
    if (!message.send || message.via != Via::Ring) continue;
    if (graph.code(message.copy).srcs[0].memory != Memory::Scratch) continue;
    const std::optional<NodeId> maker = find_maker(graph, message);
    if (maker && keeps_order(graph, message, *maker)) elide_copy(graph, number, *maker);
  }
}

}  // namespace hetccl::lower
