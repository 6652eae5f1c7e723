#include "exec/interpreter.h"

#include <doctest/doctest.h>

#include "exec/testing.h"

namespace {

using namespace hetccl;
using namespace hetccl::exec;

}  // namespace

TEST_CASE("a graph records the work of a traced call, but none of its operation's words") {
  plan::RankPlan plan;
  plan.slicing = plan::Slicing::None;
  plan::Step step;
  step.kind = plan::StepKind::CclAllReduce;
  step.srcs = {{plan::Buffer::Input, 0}};
  step.dst = {plan::Buffer::Output, 0};
  plan.steps = {step};
  Program program(plan);
  lower::Target target;
  target.observed = true;
  program.bind(target);
  const auto lowered = program.lower_for({.type = DataType::Float32, .count = 16}).value();
  REQUIRE(lowered.code->syncs.size() > 2);  // a trace wants to see the call end

  exec::testing::QueueDevice device;
  exec::testing::Library library;
  Batch batch(device, true);
  auto interpreter = std::move(Interpreter::create(device, batch, &library, 2, {})).value();
  auto user = std::move(device.create_stream()).value();
  std::vector<float> memory(16);
  Call call;
  call.send = call.recv = memory.data();
  call.signature = {Collective::AllReduce, DataType::Float32, RedOp::Sum, 0, memory.size()};
  Operation op(device);
  REQUIRE(op.prepare(lowered, call).ok());
  REQUIRE(interpreter->record(op, *user).ok());
  CHECK(library.calls == 1);
  while (device.progress()) {
  }
  for (lower::SyncId sync = 0; sync < lowered.code->syncs.size(); ++sync) {
    CHECK(op.flag(sync).word.load() == 0);
  }
}
