// Turns the graph into Code: each dependency becomes a wait of the later node and a signal of the
// earlier one.
#include <algorithm>

#include "lower/graph.h"

namespace hetccl::lower {
namespace {

/// The syncs that signal a node's end.
struct Told {
  SyncId flag = kNoSync, event = kNoSync;
};

class Emitter {
 public:
  explicit Emitter(Graph graph) : graph_(std::move(graph)), told_(graph_.nodes.size()) {}

  Code run() && {
    code_.n_slots = graph_.geometry.n_slots;
    code_.scratch_blocks = graph_.plan.scratch_blocks;
    code_.syncs = {{.once = true}, {.once = true}};  // kStarted, kFinished
    told_[graph_.begin].flag = kStarted;
    for (const Reach& reach : graph_.target.lanes) code_.lanes.push_back({reach.peer});
    list_messages();
    const std::vector<NodeId> body = body_of(graph_);
    if (!body.empty()) code_.last_lag = graph_.code(body.back()).lag;
    find_syncs(body);
    emit_prologue(body);
    code_.body = size();
    for (const NodeId id : body) emit_node(id);
    code_.epilogue = size();
    emit_epilogue();
    index_lanes(code_);
    return std::move(code_);
  }

 private:
  [[nodiscard]] uint32_t size() const { return static_cast<uint32_t>(code_.list.size()); }

  void list_messages() {
    for (const MessageNodes& message : graph_.messages) {
      const Instruction& post = graph_.code(message.post);
      const plan::Step& step = graph_.plan.steps[post.step];
      const plan::Region& region = message.send ? step.srcs[0] : step.dst;
      code_.messages.push_back({message.send, static_cast<uint16_t>(lane_of(post.queue)), post.step,
                                step.message, code_.staged_blocks, region});
      code_.staged_blocks += message.via == Via::Staged ? region.blocks : 0;
    }
    code_.fixed_slices = graph_.plan.slicing == plan::Slicing::Fixed;
    code_.one_library_call = is_one_library_call(graph_.plan);
    code_.scales_averages = graph_.plan.scales_averages;
    code_.brief = graph_.geometry.brief;
    code_.registered = graph_.geometry.registered;
    code_.rotates = !graph_.geometry.own_buffers && code_.scratch_blocks + code_.staged_blocks > 0;
  }

  SyncId add_sync(bool event, bool once, NodeId id) {
    code_.syncs.push_back({event, once, graph_.code(id).step});
    return static_cast<SyncId>(code_.syncs.size() - 1);
  }

  /// The sync on which `waiter` waits for `dep`.
  [[nodiscard]] SyncId sync_for(NodeId dep, QueueId waiter) const {
    const bool event = is_stream(graph_.code(dep).queue) && is_stream(waiter);
    return event ? told_[dep].event : told_[dep].flag;
  }

  void find_syncs(const std::vector<NodeId>& body) {
    for (const NodeId id : body) {
      for (const Dep dep : graph_.nodes[id].deps) need_sync(dep.node, graph_.code(id).queue);
    }
    for (const NodeId id : body) {
      const bool traced =
          graph_.target.observed && info_of(graph_.code(id).op).is(OpcodeInfo::kTraced);
      if (traced && told_[id].flag == kNoSync) told_[id].flag = add_sync(false, false, id);
    }
    for (const Dep dep : graph_.nodes[graph_.end].deps) {
      if (!is_stream(graph_.code(dep.node).queue)) need_sync(dep.node, kUser);
    }
  }

  void need_sync(NodeId dep, QueueId waiter) {
    const bool event = is_stream(graph_.code(dep).queue) && is_stream(waiter);
    SyncId& sync = event ? told_[dep].event : told_[dep].flag;
    if (sync == kNoSync) sync = add_sync(event, dep == graph_.begin, dep);
  }

  void add(Opcode op, QueueId queue, SyncId sync = kNoSync) {
    Instruction one;
    one.op = op;
    one.queue = queue;
    one.sync = sync;
    code_.list.push_back(std::move(one));
  }

  void emit_prologue(const std::vector<NodeId>& body) {
    if (code_.rotates && streams_use_buffers(body)) add(Opcode::Acquire, kUser);
    if (told_[graph_.begin].event != kNoSync) {
      add(Opcode::Signal, kUser, told_[graph_.begin].event);
    }
    if (!code_.one_library_call || graph_.target.observed) add(Opcode::Signal, kUser, kStarted);
    std::vector<bool> seen(size_t{kStreams} + 3 * code_.lanes.size());
    for (const NodeId id : body) {
      Node& node = graph_.nodes[id];
      const bool first = !seen[node.code.queue];
      seen[node.code.queue] = true;
      if (!first || !depends_on(node, graph_.begin)) continue;
      // Only the first: the queue's later instructions come behind it.
      add(Opcode::Wait, node.code.queue, sync_for(graph_.begin, node.code.queue));
      std::erase(node.deps, Dep{graph_.begin, 0});
    }
    acquire_for_receives();
    fill_identity(body);
  }

  /// Whether streams, or messages that wait for streams, write to the buffers before a receive has
  /// acquired them.
  [[nodiscard]] bool streams_use_buffers(const std::vector<NodeId>& body) const {
    return std::any_of(body.begin(), body.end(), [&](NodeId id) {
      const Instruction& code = graph_.code(id);
      const bool copies_in = code.op == Opcode::Copy && code.srcs[0].memory == Memory::Staging;
      const bool receives = code.op == Opcode::Recv && code.dst.memory == Memory::Staging;
      bool writes = false;
      for_each_effect(
          code, graph_.target.local_rank, [&](const Operand& operand, bool is_write, size_t) {
            writes |= is_write &&
                      (operand.memory == Memory::Scratch || operand.memory == Memory::Staging);
          });
      return writes && !copies_in && !receives;
    });
  }

  // A message that arrives early must not overwrite data that the previous call still reads.
  void acquire_for_receives() {
    std::vector<bool> done(code_.lanes.size());
    for (const MessageNodes& message : graph_.messages) {
      const QueueId queue = graph_.code(message.post).queue;
      if (message.send || message.via != Via::Staged || !code_.rotates) continue;
      if (done[lane_of(queue)]) continue;
      done[lane_of(queue)] = true;
      add(Opcode::Acquire, queue);
    }
  }

  void fill_identity(const std::vector<NodeId>& body) {
    const auto uses_identity = [&](NodeId id) {
      const auto& shards = graph_.code(id).shards;
      return std::any_of(shards.begin(), shards.end(),
                         [](const Shard& shard) { return shard.send.memory == Memory::Identity; });
    };
    const auto first = std::find_if(body.begin(), body.end(), uses_identity);
    if (first == body.end()) return;
    code_.uses_identity = true;
    add(Opcode::FillIdentity, graph_.code(*first).queue);
    code_.list.back().dst.memory = Memory::Identity;
  }

  void emit_node(NodeId id) {
    const Node& node = graph_.nodes[id];
    const auto add_with = [&](Opcode op) -> Instruction& {
      Instruction one;
      one.op = op;
      one.queue = node.code.queue;
      one.stage = node.code.stage;
      one.step = node.code.step;
      one.lag = node.code.lag;
      return code_.list.emplace_back(std::move(one));
    };
    for (const Dep dep : node.deps) {
      Instruction& wait = add_with(Opcode::Wait);
      wait.sync = sync_for(dep.node, node.code.queue);
      wait.back = dep.back;
    }
    if (node.code.op == Opcode::Acknowledge && node.deps.empty()) {
      add_with(Opcode::Wait).sync = kFinished;
    }
    for (const uint16_t message : node.reserves) add_with(Opcode::Reserve).message = message;
    code_.list.push_back(node.code);
    code_.list.back().done = told_[id].flag;
    if (info_of(node.code.op).is(OpcodeInfo::kByHost)) {
      ++code_.host_reduces;
      const auto n = static_cast<uint32_t>(node.code.srcs.size());
      code_.host_sources = std::max(code_.host_sources, n);
    }
    if (!is_stream(node.code.queue)) return;
    for (const SyncId sync : {told_[id].flag, told_[id].event}) {
      if (sync != kNoSync) add_with(Opcode::Signal).sync = sync;
    }
  }

  void emit_epilogue() {
    const Node& end = graph_.nodes[graph_.end];
    for (const Dep dep : end.deps) {
      SyncId sync = sync_for(dep.node, kUser);
      if (sync == kNoSync) {
        sync = add_sync(true, true, dep.node);
        add(Opcode::Signal, graph_.code(dep.node).queue, sync);
      }
      add(Opcode::Wait, kUser, sync);
    }
    code_.list.push_back(end.code);
  }

  Graph graph_;
  std::vector<Told> told_;  // by node
  Code code_;
};

}  // namespace

Code emit(Graph graph) {
  return Emitter(std::move(graph)).run();
}

}  // namespace hetccl::lower
