#include "lower/lower.h"

#include "lower/graph.h"

namespace hetccl::lower {

Result<Code> lower(const plan::RankPlan& plan, const Target& target, const Geometry& geometry) {
  HETCCL_ASSIGN(Graph graph, build_graph(plan, target, geometry));
  stage_messages(graph);
  read_in_place(graph);
  make_in_ring(graph);
  merge_streams(graph);
  join_streams(graph);
  wait_for_slots(graph);
  drop_implied_waits(graph);
  return emit(std::move(graph));
}

}  // namespace hetccl::lower
