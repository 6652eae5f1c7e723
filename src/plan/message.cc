#include "plan/message.h"
namespace hetccl::plan {

RankPlan plan_message(int rank, int from, int to, const topology::Topology& topology) {
  RankPlan plan;
  plan.name = "message";
  plan.slicing = topology.host_access_everywhere() ? Slicing::None : Slicing::Fixed;
  // To and from every other rank, two calls in flight each.
  plan.most_messages = 4 * static_cast<uint32_t>(topology.n_ranks() - 1);
  Step step{.srcs = {{Buffer::Input}}, .dst = {Buffer::Output}};
  step.kind = from == to ? StepKind::Copy : rank == from ? StepKind::Send : StepKind::Recv;
  if (step.kind == StepKind::Send) step.peer = to;
  if (step.kind == StepKind::Recv) {
    step.peer = from;
    step.srcs.clear();
  }
  if (rank == from || rank == to) plan.steps.push_back(std::move(step));
  return plan;
}

}  // namespace hetccl::plan
