// Drops waits that other waits imply: each costs a driver call and orders nothing. Vector clocks
// over the static order, for runs of one slice, two and so on, show which are implied. An
// implication that holds in the last slice of a run also holds in longer runs.
#include <algorithm>

#include "lower/graph.h"

namespace hetccl::lower {
namespace {

// Above these limits the pass is skipped. Its time grows with the square of nodes times slices; its
// memory with nodes times the number of nodes and lanes.
constexpr size_t kMostSteps = 50'000'000;
constexpr size_t kMostBytes = size_t{64} << 20U;

using Clock = std::vector<int32_t>;  // by node: the last slice known to be complete

/// Completions known at a point, and those known from streams and events alone. The latter matter
/// because an abort releases all words at once.
struct Known {
  explicit Known(size_t n = 0) : by_all(n, -1), by_events(n, -1) {}
  [[nodiscard]] const Clock& by(bool events) const { return events ? by_events : by_all; }
  Clock by_all, by_events;
};

void join(Clock& into, const Clock& from) {
  for (size_t i = 0; i < into.size(); ++i) into[i] = std::max(into[i], from[i]);
}

class Clocks {
 public:
  Clocks(const Graph& graph, const std::vector<NodeId>& body, uint32_t n_slices)
      : graph_(graph), body_(body), n_(graph.nodes.size()), n_slices_(n_slices) {}

  /// Calls `keep(node, index)` for each dependency of the last slice that no other dependency
  /// implies.
  template <typename Keep>
  void run(Keep&& keep) {
    begin_ = Known(n_);
    begin_.by_all[graph_.begin] = begin_.by_events[graph_.begin] = 0;
    queues_.assign(size_t{kStreams} + 3 * graph_.target.lanes.size(), Known(n_));
    queues_[stream_queue(QueueKind::User)] = begin_;
    lanes_.assign(queues_.size(), Known(n_));
    ends_.assign(n_ * n_slices_, Known());
    const uint32_t last_lag = graph_.code(body_.back()).lag;
    for (uint32_t time = 0; time < n_slices_ + last_lag; ++time) {
      for (const NodeId id : body_) {
        const uint32_t lag = graph_.code(id).lag;
        // Nothing waits for an acknowledgement, and it may wait for readers that start later.
        if (graph_.code(id).op == Opcode::Acknowledge) continue;
        if (time >= lag && time - lag < n_slices_) start(id, time - lag, keep);
      }
    }
    start(graph_.end, n_slices_ - 1, keep);
  }

 private:
  [[nodiscard]] const Known* end_of(Dep dep, uint32_t slice) const {
    if (dep.node == graph_.begin) return &begin_;
    return slice < dep.back ? nullptr : &ends_[dep.node * n_slices_ + slice - dep.back];
  }
  [[nodiscard]] int32_t wanted(Dep dep, uint32_t slice) const {
    return dep.node == graph_.begin ? 0 : static_cast<int32_t>(slice - dep.back);
  }
  [[nodiscard]] bool is_event(const Node& node, Dep dep) const {
    return is_stream(node.code.queue) && is_stream(graph_.code(dep.node).queue);
  }

  // Only events may imply an event, so that streams keep their order after an abort: none touches
  // the caller's memory before the user's stream has reached the call, or after it has passed it.
  [[nodiscard]] bool is_implied(const Node& node, size_t index, uint32_t slice) const {
    const Dep dep = node.deps[index];
    const bool event = is_event(node, dep);
    const int32_t slice_of_dep = wanted(dep, slice);
    if (queues_[node.code.queue].by(event)[dep.node] >= slice_of_dep) return true;
    for (size_t other = 0; other < node.deps.size(); ++other) {
      if (other == index || (event && !is_event(node, node.deps[other]))) continue;
      const Known* end = end_of(node.deps[other], slice);
      if (end != nullptr && end->by(event)[dep.node] >= slice_of_dep) return true;
    }
    return false;
  }

  template <typename Keep>
  void start(NodeId id, uint32_t slice, Keep& keep) {
    const Node& node = graph_.nodes[id];
    Known& queue = queues_[node.code.queue];
    for (size_t i = 0; i < node.deps.size() && slice + 1 == n_slices_; ++i) {
      if (end_of(node.deps[i], slice) != nullptr && !is_implied(node, i, slice)) keep(id, i);
    }
    for (const Dep dep : node.deps) {
      const Known* end = end_of(dep, slice);
      if (end == nullptr) continue;
      join(queue.by_all, end->by_all);
      if (is_event(node, dep)) join(queue.by_events, end->by_events);
    }
    if (id == graph_.end) return;
    Known& end = ends_[id * n_slices_ + slice];
    if (is_stream(node.code.queue)) {
      queue.by_all[id] = queue.by_events[id] = static_cast<int32_t>(slice);
      end = queue;
      return;
    }
    // Messages of a lane start in order and complete in order.
    Known& lane = lanes_[node.code.queue];
    join(lane.by_all, queue.by_all);
    lane.by_all[id] = static_cast<int32_t>(slice);
    end = lane;
  }

  const Graph& graph_;
  const std::vector<NodeId>& body_;
  size_t n_;
  uint32_t n_slices_;
  std::vector<Known> queues_;  // known when a queue's next node starts
  std::vector<Known> lanes_;   // known when a lane's last message is complete
  std::vector<Known> ends_;    // by node and slice: known when that node is complete
  Known begin_;
};

}  // namespace

void drop_implied_waits(Graph& graph) {
  const std::vector<NodeId> body = body_of(graph);
  if (body.empty()) return;
  for (Node& node : graph.nodes) {
    std::sort(node.deps.begin(), node.deps.end());
    node.deps.erase(std::unique(node.deps.begin(), node.deps.end()), node.deps.end());
  }
  // Longer runs only repeat this one.
  const uint32_t lag = graph.code(body.back()).lag, slots = graph.geometry.n_slots;
  const uint32_t most = graph.geometry.reuses_slots() ? slots + lag + 2 : slots;
  const size_t steps = graph.nodes.size() * most;
  const size_t clocks = steps + 2 * (kStreams + 3 * graph.target.lanes.size());
  if (steps * steps > kMostSteps) return;
  if (clocks * 2 * sizeof(int32_t) * graph.nodes.size() > kMostBytes) return;
  std::vector<std::vector<bool>> kept;
  for (const Node& node : graph.nodes) {
    kept.emplace_back(node.deps.size(), node.code.op == Opcode::Acknowledge);
  }
  for (uint32_t n_slices = 1; n_slices <= most; ++n_slices) {
    Clocks(graph, body, n_slices).run([&](NodeId id, size_t index) { kept[id][index] = true; });
  }
  for (NodeId id = 0; id < graph.nodes.size(); ++id) {
    std::vector<Dep> deps;
    for (size_t i = 0; i < graph.nodes[id].deps.size(); ++i) {
      if (kept[id][i]) deps.push_back(graph.nodes[id].deps[i]);
    }
    graph.nodes[id].deps = std::move(deps);
  }
}

}  // namespace hetccl::lower
