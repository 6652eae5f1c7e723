#include "plan/planners.h"

namespace hetccl::plan {
namespace {

/// The call of the cluster's library that is the whole collective; the cluster holds all ranks in
/// order.
Step whole_call(const Builder& b) {
  const Region input{Buffer::Input}, output{Buffer::Output};
  Step step{.average = b.spec().average, .scale = b.spec().scale};
  switch (b.spec().collective) {
    case Collective::AllReduce:
      step.kind = StepKind::CclAllReduce;
      step.srcs = {input};
      step.dst = output;
      break;
    case Collective::ReduceScatter:
      step.kind = StepKind::CclReduce;
      for (uint32_t r : b.line_of(0)) {
        step.shards.push_back({static_cast<int>(r), {Buffer::Input, r}, output});
      }
      break;
    case Collective::AllGather:
      step.kind = StepKind::CclBroadcast;
      for (uint32_t r : b.line_of(0)) {
        step.shards.push_back({static_cast<int>(r), input, {Buffer::Output, r}});
      }
      break;
    case Collective::Broadcast:
      step.kind = StepKind::CclBroadcast;
      // Only the root must have an input; the others name their output.
      step.shards = {{b.spec().root, b.rank() == b.spec().root ? input : output, output}};
      break;
    case Collective::Reduce:
      step.kind = StepKind::CclReduce;
      // Only the root must have an output; the others name their input.
      step.shards = {{b.spec().root, input, b.rank() == b.spec().root ? output : input}};
      break;
    default:
      step.kind = StepKind::CclBarrier;
  }
  return step;
}

}  // namespace

RankPlan plan_vendor(Builder b) {
  if (!b.alone()) {
    b.add(whole_call(b));
  } else if (b.spec().collective != Collective::Barrier) {
    b.add({.kind = b.spec().scale ? StepKind::Reduce : StepKind::Copy,
           .srcs = {{Buffer::Input}},
           .dst = {Buffer::Output},
           .scale = b.spec().scale});
  }
  return std::move(b).finish_unsliced();
}

}  // namespace hetccl::plan
