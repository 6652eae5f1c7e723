// The graph that the passes of lowering work on: instructions that do work, and the dependencies of
// each. The last pass (emit.cc) turns dependencies into waits and signals.
#pragma once

#include <cstdint>
#include <vector>

#include "lower/code.h"
#include "lower/geometry.h"

namespace hetccl::lower {

using NodeId = uint16_t;
inline constexpr NodeId kNoNode = UINT16_MAX;
inline constexpr QueueId kUser = stream_queue(QueueKind::User);

/// The node that must be complete, `back` slices earlier; no dependency if there is no such slice.
struct Dep {
  NodeId node = 0;
  uint32_t back = 0;
  auto operator<=>(const Dep&) const = default;
};

struct Node {
  enum class Section : uint8_t { Prologue, Body, Epilogue };
  Instruction code{};
  uint32_t order = 0;  ///< position within its stage
  std::vector<Dep> deps{};
  std::vector<uint16_t> reserves{};  ///< messages to reserve in the ring before it runs
  bool live = true;
  Section section = Section::Body;
};

/// Route of a message between this rank's memory and the transport.
enum class Via : uint8_t { Direct, Staged, Ring };

/// The nodes of one message; kNoNode if there is none of a kind.
struct MessageNodes {
  bool send = false;
  Via via = Via::Direct;
  NodeId post = kNoNode;  ///< Send, Recv, or the header's
  NodeId copy = kNoNode;  ///< out of the device or into it
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
  /// Nodes that waited for `old` now wait for `now`.
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

/// Whether both may be the same memory, within one slice.
[[nodiscard]] bool overlap(const Operand& a, const Operand& b);
/// Whether both are the same elements of the same memory.
[[nodiscard]] bool same(const Operand& a, const Operand& b);
[[nodiscard]] bool depends_on(const Node& node, NodeId other);
/// Whether `a` precedes `b` in the static order of one slice.
[[nodiscard]] bool comes_before(const Node& a, const Node& b);
/// Live nodes of the body, in the static order of one slice.
[[nodiscard]] std::vector<NodeId> body_of(const Graph& graph);

/// Makes a node for each step of the plan.
Result<Graph> build_graph(const plan::RankPlan& plan, const Target& target,
                          const Geometry& geometry);

// The passes, in the order in which they run.

/// Staging: a message that the transport cannot read from the device, or write to it, goes through
/// pinned memory: staging memory of its own, or the ring that both ends share.
void stage_messages(Graph& graph);
/// Reading in place: if only arithmetic, or one broadcast, reads a message, it reads it in staging
/// memory or in the ring, and the copy into the device is elided.
void read_in_place(Graph& graph);
/// Zero-copy send: data that is only sent is produced in the ring, and the copy out of the device
/// is elided.
void make_in_ring(Graph& graph);
/// Single-stream lowering: the user's stream runs everything, in the static order. For short calls,
/// which have little to overlap and spend most of their time in driver calls, and for plans with
/// one step, whose slices have nothing to overlap with.
void merge_streams(Graph& graph);
/// Fork and join: streams and lanes begin once the user's stream has reached the call; the user's
/// stream continues once they are done. Adds the first node and the last.
void join_streams(Graph& graph);
/// Buffer generations: a node that writes scratch or staging memory waits for all users of that
/// memory `n_slots` slices earlier.
void wait_for_slots(Graph& graph);
/// Drops every wait that other waits imply, for any number of slices.
void drop_implied_waits(Graph& graph);
/// Adds waits and signals, the prologue and the epilogue.
Code emit(Graph graph);

}  // namespace hetccl::lower
