// What the passes of lowering work on: instructions that do something, and what each waits for.
// Waits and signals are made of it last (emit.cc).
#pragma once

#include <cstdint>
#include <vector>

#include "lower/code.h"
#include "lower/geometry.h"

namespace hetccl::lower {

using NodeId = uint16_t;
inline constexpr NodeId kNoNode = UINT16_MAX;
inline constexpr QueueId kUser = stream_queue(QueueKind::User);

/// A node that must be complete, in the slice so many before, if there is one.
struct Dep {
  NodeId node = 0;
  uint32_t back = 0;
  auto operator<=>(const Dep&) const = default;
};

struct Node {
  enum class Section : uint8_t { Prologue, Body, Epilogue };
  Instruction code{};
  uint32_t order = 0;  ///< within its stage
  std::vector<Dep> deps{};
  std::vector<uint16_t> reserves{};  ///< messages whose place in the ring it takes before it runs
  bool live = true;
  Section section = Section::Body;
};

/// How a message goes between this rank's memory and the transport.
enum class Via : uint8_t { Direct, Staged, Ring };

/// The nodes of one message, as far as there are any.
struct MessageNodes {
  bool send = false;
  Via via = Via::Direct;
  NodeId post = kNoNode;  ///< Send, Recv or its header
  NodeId copy = kNoNode;  ///< out of the device, or into it
  NodeId acknowledge = kNoNode;
};

struct Graph {
  const plan::RankPlan& plan;
  const Target& target;
  const Geometry& geometry;
  std::vector<Node> nodes{};
  std::vector<MessageNodes> messages{};
  NodeId begin = kNoNode, end = kNoNode;  ///< see `join_streams`

  [[nodiscard]] const Instruction& code(NodeId id) const { return nodes[id].code; }
  NodeId add(Node node);
  /// Whoever waited for `old` waits for `now` instead.
  void replace_dep(NodeId old, NodeId now);
  /// Calls `visit(id, operand, writes, place)` for all effects of live nodes.
  template <typename Visit>
  void for_each_effect_of_all(Visit&& visit) const {
    for (NodeId id = 0; id < nodes.size(); ++id) {
      if (!nodes[id].live) continue;
      for_each_effect(nodes[id].code, target.local_rank,
                      [&](const Operand& operand, bool writes, size_t place) {
                        visit(id, operand, writes, place);
                      });
    }
  }
};

/// Whether both may be the same memory, in one slice.
[[nodiscard]] bool overlap(const Operand& a, const Operand& b);
/// Whether both are the same elements of the same memory.
[[nodiscard]] bool same(const Operand& a, const Operand& b);
[[nodiscard]] bool depends_on(const Node& node, NodeId other);
/// In the static order of one slice.
[[nodiscard]] bool comes_before(const Node& a, const Node& b);
/// Live nodes of the body in the static order of one slice.
[[nodiscard]] std::vector<NodeId> body_of(const Graph& graph);

/// A node for each step of the plan.
Result<Graph> build_graph(const plan::RankPlan& plan, const Target& target,
                          const Geometry& geometry);

// The passes, in their order.

/// Staging: a message that the transport cannot take from the device, or bring there, goes through
/// pinned memory: its own, or the ring that both ends share.
void stage_messages(Graph& graph);
/// Reading in place: where arithmetic, or one broadcast, alone reads a message, it reads it in
/// staging memory or in the ring, and the copy into the device is elided.
void read_in_place(Graph& graph);
/// Zero-copy send: what is only sent is made in the ring, and the copy out of the device is elided.
void make_in_ring(Graph& graph);
/// Single-stream lowering: a short call has little to overlap, and most of its time is calls of the
/// driver; one step's slices have nothing to overlap with. The user's stream runs all of it, in the
/// static order.
void merge_streams(Graph& graph);
/// Fork and join: streams and lanes begin once the user's stream has come to the call, and it goes
/// on once they are done. Adds the first node and the last.
void join_streams(Graph& graph);
/// Buffer generations: whoever writes scratch or staging memory waits for all that use the same
/// memory `n_slots` slices before.
void wait_for_slots(Graph& graph);
/// Drops every wait that others imply, however many slices there are.
void drop_implied_waits(Graph& graph);
/// Waits and signals, the prologue and the epilogue.
Code emit(Graph graph);

}  // namespace hetccl::lower
