#include "exec/tracer.h"

#include <doctest/doctest.h>

#include <chrono>

#include "exec/testing.h"

namespace hetccl::exec {
namespace {

using lower::Opcode;
using plan::StepKind;
using std::chrono::microseconds;

TimePoint us(int64_t n) {
  return TimePoint(microseconds(n));
}

// Step 0: the cluster reduces; 1: its result is sent; 2: the work stream copies it.
plan::RankPlan traced_plan() {
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
  return plan;
}

struct TracerFixture {
  explicit TracerFixture(uint64_t sequence = 7, const lower::Reach& reach = {.peer = 1}) {
    Call call;
    call.signature = {Collective::AllReduce, DataType::Int8, RedOp::Sum, 0, 128};
    call.sequence = sequence;
    call.launched = us(100);
    target.observed = true;
    target.lanes = {reach};
    geometry.slice_elements = 64;
    geometry.n_slices = geometry.n_slots = 2;
    geometry.depth = 1;
    geometry.lanes = {{.send_in_ring = reach.ring_bytes > 0}};
    code = lower::lower(plan, target, geometry).value();
    REQUIRE(operation.prepare({geometry.slice_elements, geometry.n_slices, &code}, call).ok());
  }
  static void flag(device::Flag& flag, uint32_t value) { flag.word.store(value); }
  // Returns the instruction with that opcode.
  [[nodiscard]] uint32_t find(Opcode op) const {
    uint32_t i = code.body;
    while (code.list[i].op != op) ++i;
    return i;
  }
  device::Flag& done(Opcode op) { return operation.flag(code.list[find(op)].done); }
  testing::QueueDevice device;
  const plan::RankPlan plan = traced_plan();
  lower::Target target;
  lower::Geometry geometry;
  lower::Code code;
  Operation operation{device};
  Tracer tracer;
};

std::string text(const TraceSpan& span) {
  return format("%s %d/%u on %d: %lld-%lld", span.name, span.step, span.slice, span.track,
                static_cast<long long>(span.begin.time_since_epoch().count() / 1000),
                static_cast<long long>(span.end.time_since_epoch().count() / 1000));
}

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

TEST_CASE("steps begin when what they need is there and their track is free") {
  TracerFixture f;
  Operation& op = f.operation;
  const uint32_t send = f.find(Opcode::Send);
  constexpr uint32_t kLane = Tracer::peer_track(0, Tracer::PeerTrack::Collectives, true);
  f.tracer.look(op, us(110));
  CHECK(f.tracer.spans().empty());
  f.flag(op.started(), 1);
  f.tracer.look(op, us(120));
  f.flag(f.done(Opcode::CclReduce), 1);
  f.tracer.look(op, us(150));
  f.tracer.post(op, {0, send}, us(151));
  f.flag(f.done(Opcode::CclReduce), 2);
  f.tracer.look(op, us(160));
  f.tracer.post(op, {1, send}, us(161));
  f.flag(f.done(Opcode::Copy), 2);
  f.tracer.look(op, us(170));
  f.tracer.complete(op, {0, send}, kLane, us(180));
  f.tracer.complete(op, {1, send}, kLane, us(190));
  f.tracer.retire(op, us(200));
  std::vector<std::string> spans;
  for (const auto& span : f.tracer.spans()) spans.push_back(text(span));
  CAPTURE(joined(spans));
  CHECK(spans == std::vector<std::string>{"ccl_reduce 0/0 on 0: 120-150",
                                          "ccl_reduce 0/1 on 0: 150-160",
                                          "waiting 2/0 on 1: 120-150", "copy 2/0 on 1: 150-170",
                                          "copy 2/1 on 1: 170-170", "waiting 1/0 on 4: 120-151",
                                          "send 1/0 on 4: 151-180", "send 1/1 on 4: 180-190"});
  REQUIRE(f.tracer.operations().size() == 1);
  const TraceOperation& operation = f.tracer.operations().front();
  CHECK(operation.sequence == 7);
  CHECK(operation.launched == us(100));
  CHECK(operation.started == us(120));
  CHECK(operation.completed == us(200));
}

TEST_CASE("copies to and from memory that others reach have tracks of their own") {
  TracerFixture f(7, {.peer = 1, .ring_bytes = 64 << 10});
  Operation& op = f.operation;
  // Both the message's copy and the plan's copy have this opcode.
  const uint32_t out = f.find(Opcode::Copy);
  REQUIRE(lower::kind_of(f.code.list[out].queue) == lower::QueueKind::Out);
  f.flag(op.started(), 1);
  f.flag(f.done(Opcode::CclReduce), 1);
  f.tracer.look(op, us(120));
  f.flag(op.flag(f.code.list[out].done), 1);
  f.tracer.look(op, us(130));
  const uint32_t send = f.find(Opcode::SendHeader);
  f.tracer.post(op, {0, send}, us(131));
  f.tracer.complete(op, {0, send}, Tracer::peer_track(0, Tracer::PeerTrack::Messages, true),
                    us(140));
  std::vector<std::string> spans;
  for (const auto& span : f.tracer.spans()) spans.push_back(text(span));
  CHECK(spans == std::vector<std::string>{"ccl_reduce 0/0 on 0: 120-120", "copy 1/0 on 2: 120-130",
                                          "waiting 1/0 on 6: 120-131",
                                          "send_header 1/0 on 6: 131-140"});
  static_assert(Tracer::kOutTrack == 2);
}

TEST_CASE("only the latest spans and operations are kept") {
  TracerFixture f;
  const uint64_t n = Tracer::kSpans;  // two spans each
  for (uint64_t number = 0; number < n; ++number) {
    f.operation.call.sequence = number;
    f.flag(f.operation.started(), 1);
    f.flag(f.done(Opcode::CclReduce), 2);
    const auto now = us(static_cast<int64_t>(number) * 10 + 1'000);
    f.tracer.look(f.operation, now);
    f.tracer.retire(f.operation, now + microseconds(5));
  }
  CHECK(f.tracer.spans().size() == Tracer::kSpans);
  CHECK(f.tracer.forgotten() == n);
  CHECK(f.tracer.operations().size() == Tracer::kOperations);
  CHECK(f.tracer.operations().back().sequence == n - 1);
  CHECK(f.tracer.spans().back().sequence == n - 1);
}

TEST_CASE("an aborted operation ends its steps where they are") {
  TracerFixture f;
  f.tracer.look(f.operation, us(110));
  f.operation.release_waits();
  f.tracer.retire(f.operation, us(120));
  CHECK(f.tracer.spans().size() == 4);
  for (const auto& span : f.tracer.spans()) CHECK(span.end == us(120));
  // Names with characters that JSON forbids do not break it.
  const std::string json = to_json(f.tracer, {0, "a \"host\"\n\xff"});
  CHECK(json.find("\"a ?host???\"") != std::string::npos);
}

}  // namespace
}  // namespace hetccl::exec
