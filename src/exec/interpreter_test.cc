#include "exec/interpreter.h"

#include <doctest/doctest.h>

#include "exec/testing.h"

namespace {

using namespace hetccl;
using namespace hetccl::exec;
using hetccl::plan::Buffer;
using hetccl::plan::StepKind;

/// One step in one slice, on a device that moves on when it is told to.
struct StepFixture {
  explicit StepFixture(plan::Step step, const lower::Target& target = {}) {
    plan::RankPlan plan;
    plan.slicing = plan::Slicing::None;
    plan.steps = {std::move(step)};
    program = std::make_unique<Program>(plan);
    program->bind(target);
    call.send = input.data();
    call.recv = output.data();
    call.signature = {Collective::AllReduce, DataType::Float32, RedOp::Sum, 0, input.size()};
    const lower::CallShape shape{.type = DataType::Float32, .count = input.size()};
    REQUIRE(op.prepare(program->lower_for(shape).value(), call).ok());
    interpreter = std::move(Interpreter::create(device, &library, 2, {})).value();
    user = std::move(device.create_stream()).value();
  }
  void drain() {
    while (device.progress()) {
    }
  }

  exec::testing::QueueDevice device;
  exec::testing::Library library;
  std::vector<float> input = std::vector<float>(16, 2), output = std::vector<float>(16, 3);
  Call call;
  std::unique_ptr<Program> program;
  std::unique_ptr<Interpreter> interpreter;
  std::unique_ptr<device::Stream> user;
  Operation op{device};
};

}  // namespace

TEST_CASE("without a stream nobody waits, and Code tells its start and its end at once") {
  plan::Step receive;
  receive.kind = StepKind::Recv;
  receive.peer = 1;
  receive.dst = {Buffer::Output, 0};
  lower::Target target;
  target.lanes = {{.peer = 1}};
  StepFixture f(receive, target);
  using enum lower::Part::Section;
  REQUIRE(f.interpreter->enqueue(f.op, nullptr, {}, {Prologue}).ok());
  CHECK(f.op.started().reached(1));
  REQUIRE(f.interpreter->enqueue(f.op, nullptr, {}, {Body}).ok());
  CHECK_FALSE(f.op.is_finished());
  REQUIRE(f.interpreter->enqueue(f.op, nullptr, {}, {Epilogue}).ok());
  CHECK(f.op.is_finished());
  CHECK_FALSE(f.op.ended());  // its message is still to come
}

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
  auto interpreter = std::move(Interpreter::create(device, &library, 2, {})).value();
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
