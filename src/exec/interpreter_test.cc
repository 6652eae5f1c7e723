#include "exec/interpreter.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "exec/testing.h"

namespace {

using namespace hetccl;
using namespace hetccl::exec;
using hetccl::plan::Buffer;
using hetccl::plan::StepKind;

/// Runs one step in one slice, on a device without kernels that advances when told to.
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
    const lower::CallShape shape{
        .type = DataType::Float32, .count = input.size(), .by_host = lower::kAllArithmetic};
    REQUIRE(op.prepare(program->lower_for(shape).value(), call).ok());
    interpreter = std::move(Interpreter::create(device, batch, &library, 2, {})).value();
    user = std::move(device.create_stream()).value();
  }
  void drain() {
    while (device.progress()) {
    }
  }

  exec::testing::QueueDevice device;
  exec::testing::Library library;
  Batch batch{device, Batch::Launches::Spin};
  std::vector<float> input = std::vector<float>(16, 2), output = std::vector<float>(16, 3);
  Call call;
  std::unique_ptr<Program> program;
  std::unique_ptr<Interpreter> interpreter;
  std::unique_ptr<device::Stream> user;
  Operation op{device};
};

plan::Step sum_of_both() {
  plan::Step sum;
  sum.kind = StepKind::Reduce;
  sum.srcs = {{Buffer::Input, 0}, {Buffer::Output, 0}};
  sum.dst = {Buffer::Output, 0};
  return sum;
}

}  // namespace

TEST_CASE("the host adds for a device that cannot, in memory that was taken before") {
  StepFixture f(sum_of_both());
  const size_t taken = f.device.allocated_bytes;
  REQUIRE(f.interpreter->enqueue(f.op, *f.user, {}).ok());
  CHECK(f.device.allocated_bytes == taken);
  CHECK_FALSE(f.op.is_finished());
  f.drain();
  CHECK(f.output == std::vector<float>(16, 5));
  CHECK(f.op.is_finished());  // the caller gives no signal
}

TEST_CASE("identities are where memory for them was taken before, once for all calls alike") {
  plan::Step reduce;
  reduce.kind = StepKind::CclReduce;
  reduce.shards = {{0, {Buffer::Identity, 0}, {Buffer::Output, 0}}};
  StepFixture f(reduce);
  for (int call = 0; call < 2; ++call) {
    const size_t taken = f.device.allocated_bytes;
    REQUIRE(f.interpreter->enqueue(f.op, *f.user, {}).ok());
    CHECK(f.device.allocated_bytes == taken);
    f.drain();
    const auto* first = reinterpret_cast<const float*>(f.op.identities.data());
    CHECK(std::all_of(first, first + 16, [](float one) { return one == 0 && std::signbit(one); }));
    CHECK(f.op.is_finished());
  }
}

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
  CHECK_FALSE(f.op.ended());  // its message is still missing
}

TEST_CASE("each kind of arithmetic is the host's where the device cannot do that") {
  struct Device : exec::testing::QueueDevice {
    [[nodiscard]] bool supports(DataType type, RedOp op) const override {
      return QueueDevice::supports(type, op) && op != RedOp::Max && op != RedOp::PreMulSum;
    }
  };
  const Device device;  // has kernels, but none for encodings
  const auto by_host = [&](RedOp op, Divisor divisor = 3, Encoding encoding = {}) {
    Signature call{Collective::AllReduce, DataType::Float16, op, 0, 1};
    call.encoding = encoding;
    return arithmetic_by_host(device, call, divisor);
  };
  using lower::arithmetic_of;
  const uint8_t sums = arithmetic_of(false, false, false);
  CHECK(by_host(RedOp::Sum) == 0);
  CHECK(by_host(RedOp::Max) == sums);
  CHECK(by_host(RedOp::PreMulSum) == arithmetic_of(false, true, false));
  CHECK(by_host(RedOp::Avg) == 0);
  // If earlier means are already scaled, the divisor is a whole number or none.
  CHECK(by_host(RedOp::Avg, {3, true}) == arithmetic_of(true, false, false));
  CHECK(by_host(RedOp::Avg, {4, true}) == 0);
  CHECK(by_host(RedOp::Sum, 3, {Format::Int8, 32}) == arithmetic_of(false, false, true));
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
  REQUIRE(lowered.code->syncs.size() > 2);  // a trace needs to see the call's end

  exec::testing::QueueDevice device;
  exec::testing::Library library;
  Batch batch(device, Batch::Launches::Spin);
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
