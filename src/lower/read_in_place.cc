// Reading in place: host kernels and host libraries read a message where it arrived; so do the
// kernels of a short call on any device. (In other cases a device reads pinned memory more slowly
// than it copies it.)
#include <algorithm>
#include <optional>

#include "lower/graph.h"

namespace hetccl::lower {
namespace {

/// The nodes that read a message, if only arithmetic, copies and broadcasts touch it.
struct Readers {
  std::vector<NodeId> nodes;
  bool broadcast = false;  ///< one of the nodes is a broadcast
  size_t waiting = 0;      ///< number of nodes that wait for the copy
};

// Whether a broadcast may read the shard where it arrived instead of in `copied`. If `copied` is in
// the output, the library must write it there.
bool may_pass_on(const Shard& shard, const Operand& copied) {
  if (!same(shard.send, copied)) return false;
  return copied.memory == Memory::Output ? same(shard.recv, copied) && shard.receiver < 0
                                         : !overlap(shard.recv, copied);
}

// Whether `id` touches `copied` only by reading all of it. Sets `reads`.
bool leaves_in_place(const Graph& graph, NodeId id, const Operand& copied, bool& reads) {
  const Instruction& code = graph.code(id);
  const bool computes = code.op == Opcode::Reduce || code.op == Opcode::Copy;
  const bool takes = computes && copied.memory == Memory::Scratch;
  bool leaves = true;
  reads = false;
  for_each_effect(code, graph.target.local_rank,
                  [&](const Operand& operand, bool writes, size_t place) {
                    if (!overlap(operand, copied)) return;
                    const bool shard = code.op == Opcode::CclBroadcast;
                    const bool fits = shard    ? may_pass_on(code.shards[place], copied)
                                      : writes ? false
                                               : takes && same(operand, copied);
                    leaves = leaves && fits;
                    reads = reads || !writes;
                  });
  return leaves;
}

std::optional<Readers> find_readers(const Graph& graph, const MessageNodes& message) {
  const Operand& copied = graph.code(message.copy).dst;
  Readers readers;
  for (NodeId id = 0; id < graph.nodes.size(); ++id) {
    const Node& node = graph.nodes[id];
    if (!node.live || id == message.copy || id == message.post || id == message.acknowledge)
      continue;
    const bool waits = depends_on(node, message.copy);
    bool reads = false;
    // A message that waits for the copy needs it: without the copy there would be nothing to wait
    // for.
    if ((waits && !is_stream(node.code.queue)) || !leaves_in_place(graph, id, copied, reads))
      return {};
    readers.waiting += waits ? 1 : 0;
    if (!reads) continue;
    // A plan that reads before it receives is wrong; the verifier reports it from the Code.
    if (comes_before(node, graph.nodes[message.copy])) return {};
    readers.nodes.push_back(id);
    readers.broadcast |= node.code.op == Opcode::CclBroadcast;
  }
  return readers;
}

// Whether the readers start early enough. On one stream they always do. On several, a sender that
// waits for credit waits for the reader of a slice older than those that the ring keeps. That
// reader precedes the sender's message in the static order, so the wait ends.
bool may_read(const Graph& graph, const MessageNodes& message, const Readers& readers) {
  const Instruction& copy = graph.code(message.copy);
  const bool one = readers.nodes.size() == 1 && readers.waiting == 1 &&
                   depends_on(graph.nodes[readers.nodes[0]], message.copy);
  // Without the copy, the reader itself must write the output, so there must be exactly one reader.
  if (copy.dst.memory == Memory::Output && !one) return false;
  if (!graph.target.host_memory && readers.broadcast) return false;
  if (graph.geometry.short_call) return true;
  if (!graph.target.host_memory || !one) return false;
  const size_t lane = lane_of(graph.code(message.post).queue);
  return graph.code(readers.nodes[0]).lag <= copy.lag + graph.geometry.lanes[lane].unread;
}

void elide_copy(Graph& graph, MessageNodes& message, const Readers& readers) {
  Node& copy = graph.nodes[message.copy];
  const Operand copied = copy.code.dst, place = copy.code.srcs[0];
  for (const NodeId id : readers.nodes) {
    Instruction& code = graph.nodes[id].code;
    for (Operand& src : code.srcs) {
      if (same(src, copied)) src = place;
    }
    for (Shard& shard : code.shards) {
      if (shard.root == graph.target.local_rank && same(shard.send, copied)) shard.send = place;
    }
    // The reader now writes what the copy would have written.
    auto& deps = graph.nodes[id].deps;
    deps.insert(deps.end(), copy.deps.begin(), copy.deps.end());
  }
  if (message.acknowledge != kNoNode) {
    auto& deps = graph.nodes[message.acknowledge].deps;
    deps.clear();
    for (const NodeId id : readers.nodes) deps.push_back({id, 0});
  }
  graph.replace_dep(message.copy, message.post);
  copy.live = false;
  message.copy = kNoNode;
}

}  // namespace

void read_in_place(Graph& graph) {
  for (MessageNodes& message : graph.messages) {
    if (message.send || message.copy == kNoNode) continue;
    const std::optional<Readers> readers = find_readers(graph, message);
    if (readers && may_read(graph, message, *readers)) elide_copy(graph, message, *readers);
  }
}

}  // namespace hetccl::lower
