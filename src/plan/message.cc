#include "plan/message.h"

#include <utility>

namespace hetccl::plan {
namespace {

constexpr Region kSent{Buffer::Input}, kReceived{Buffer::Output};

Step copy_step() {
  return {.kind = StepKind::Copy, .srcs = {kSent}, .dst = kReceived};
}

// Sends or receives the block up to `end`.
Step message_step(int rank, int from, int to, Fraction end) {
  Region region = rank == from ? kSent : kReceived;
  region.end = end;
  Step step;
  step.kind = rank == from ? StepKind::Send : StepKind::Recv;
  step.peer = rank == from ? to : from;
  if (rank == from)
    step.srcs.push_back(region);
  else
    step.dst = region;
  return step;
}

}  // namespace

RankPlan plan_message(int rank, int from, int to, const topology::Topology& topology) {
  RankPlan plan;
  plan.name = "message";
  plan.slicing = topology.host_access_everywhere() ? Slicing::None : Slicing::Fixed;
  // Two calls in flight, each to and from every other rank.
  plan.most_messages = 4 * static_cast<uint32_t>(topology.n_ranks() - 1);
  if (rank != from && rank != to) return plan;
  plan.steps.push_back(from == to ? copy_step() : message_step(rank, from, to, {1, 1}));
  return plan;
}

RankPlan plan_message_by_library(int rank, int from, int to) {
  RankPlan plan;
  plan.name = "message_by_library";
  plan.slicing = Slicing::None;
  if (rank != from && rank != to) return plan;
  const bool sends = rank == from;
  const int peer = sends ? to : from;
  Step exchange{.kind = StepKind::CclExchange, .whole = true};
  exchange.transfers.push_back({rank < peer ? 1 : 0, sends, sends ? kSent : kReceived});
  plan.steps.push_back(std::move(exchange));
  plan.steps.push_back(message_step(rank, from, to, {0, 1}));
  return plan;
}

}  // namespace hetccl::plan
