#include "exec/tracer.h"

#include <doctest/doctest.h>

#include <chrono>

#include "exec/testing.h"

namespace hetccl::exec {
namespace {

using plan::StepKind;
using std::chrono::microseconds;
using Kind = TraceSpan::Kind;

TimePoint us(int64_t n) {
  return TimePoint(microseconds(n));
}

// 0: the cluster reduces; 1: its result is sent; 2: the work stream copies it.
Program program() {
  plan::RankPlan plan;
  plan.scratch_blocks = 1;
  plan.stages = 2;
  plan::Step reduce, send, copy;
  reduce.kind = StepKind::CclReduce;
  send.kind = StepKind::Send;
  send.stage = copy.stage = 1;
  send.deps = copy.deps = {0};
  send.peer = 1;
  send.srcs = copy.srcs = {{plan::Buffer::Scratch, 0}};
  copy.kind = StepKind::Copy;
  plan.steps = {reduce, send, copy};
  return Program::compile(std::move(plan)).value();
}

struct Fixture {
  explicit Fixture(uint64_t sequence = 7) : operation(device) {
    Call call;
    call.signature = {Collective::AllReduce, DataType::Int8, RedOp::Sum, 0, 128};
    call.sequence = sequence;
    call.launched = us(100);
    REQUIRE(operation.prepare(compiled, call, 64, 2, 2, false).ok());
  }
  void flag(device::Flag& flag, uint32_t value) { flag.word.store(value); }
  testing::QueueDevice device;
  const Program compiled = program();
  Operation operation;
  Tracer tracer;
};

std::string text(const TraceSpan& span) {
  const char* const names[] = {"waiting", "ccl", "reduce", "copy", "send", "recv"};
  return format("%s %d/%u on %d: %lld-%lld", names[static_cast<size_t>(span.kind)], span.step,
                span.slice, span.track,
                static_cast<long long>(span.begin.time_since_epoch().count() / 1000),
                static_cast<long long>(span.end.time_since_epoch().count() / 1000));
}

TEST_CASE("steps begin when what they need is there and their track is free") {
  Fixture f;
  Operation& op = f.operation;
  f.tracer.look(0, op, us(110));
  CHECK(f.tracer.spans().empty());
  f.flag(op.started(), 1);
  f.tracer.look(0, op, us(120));
  f.flag(op.done_of(0), 1);
  f.tracer.look(0, op, us(150));
  f.tracer.post(0, op, {0, 1}, us(151));
  f.flag(op.done_of(0), 2);
  f.tracer.look(0, op, us(160));
  f.tracer.post(0, op, {1, 1}, us(161));
  f.flag(op.done_of(2), 2);
  f.tracer.look(0, op, us(170));
  f.tracer.complete(0, op, {0, 1}, 2, us(180));
  f.tracer.complete(0, op, {1, 1}, 2, us(190));
  f.tracer.retire(0, op, us(200));
  std::vector<std::string> spans;
  for (const auto& span : f.tracer.spans()) spans.push_back(text(span));
  CHECK(spans == std::vector<std::string>{"ccl 0/0 on 0: 120-150", "ccl 0/1 on 0: 150-160",
                                          "waiting 2/0 on 1: 120-150", "copy 2/0 on 1: 150-170",
                                          "copy 2/1 on 1: 170-170", "waiting 1/0 on 2: 120-151",
                                          "send 1/0 on 2: 151-180", "send 1/1 on 2: 180-190"});
  REQUIRE(f.tracer.operations().size() == 1);
  const TraceOperation& operation = f.tracer.operations().front();
  CHECK(operation.sequence == 7);
  CHECK(operation.launched == us(100));
  CHECK(operation.started == us(120));
  CHECK(operation.completed == us(200));
}

TEST_CASE("only the latest spans and operations are kept") {
  Fixture f;
  const uint64_t n = Tracer::kSpans;  // two spans each
  for (uint64_t number = 0; number < n; ++number) {
    f.operation.call.sequence = number;
    f.flag(f.operation.started(), 1);
    f.flag(f.operation.done_of(0), 2);
    const auto now = us(static_cast<int64_t>(number) * 10 + 1'000);
    f.tracer.look(number, f.operation, now);
    f.tracer.retire(number, f.operation, now + microseconds(5));
  }
  CHECK(f.tracer.spans().size() == Tracer::kSpans);
  CHECK(f.tracer.forgotten() == n);
  CHECK(f.tracer.operations().size() == Tracer::kOperations);
  CHECK(f.tracer.operations().back().sequence == n - 1);
  CHECK(f.tracer.spans().back().sequence == n - 1);
}

TEST_CASE("an aborted operation ends its steps where they are") {
  Fixture f;
  f.tracer.look(0, f.operation, us(110));
  f.operation.release_waits();
  f.tracer.retire(0, f.operation, us(120));
  CHECK(f.tracer.spans().size() == 4);
  for (const auto& span : f.tracer.spans()) CHECK(span.end == us(120));
  // Names that are no JSON do not break it.
  const std::string json = to_json(f.tracer, {0, "a \"host\"\n\xff", {{0, "ccl"}}});
  CHECK(json.find("\"a ?host???\"") != std::string::npos);
}

}  // namespace
}  // namespace hetccl::exec
