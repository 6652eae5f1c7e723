// Elided copies: messages that are read where they arrived, or produced where they leave from.
#include <doctest/doctest.h>

#include "lower/testing.h"

namespace hetccl::lower {
namespace {

using namespace testing;

// Lists the readers of the message that step 2 of a plan such as `exchange` receives in a ring;
// "copy" if it is copied to the plan's destination. The message to rank 5 goes straight.
std::string readers(RankPlan plan, uint64_t count = kOneSlice) {
  Job job(std::move(plan), kShared);
  job.target.lanes.at(1).ring_bytes = 0;
  job.cut(count);
  return readers_of(job.code(), 1);
}

// The instruction that writes the message of `step` into a ring.
std::string maker(RankPlan plan, uint16_t step = 1) {
  const Code code = Job(std::move(plan), kShared).code();
  return writers_of(code, code.list[find(code, Opcode::SendHeader, step)].message);
}

// Step 0 receives block 0 of the output from rank 3; step 1 broadcasts that and block 1 in the
// cluster.
RankPlan broadcast_of_output() {
  const Region output{Buffer::Output, 0};
  RankPlan plan;
  plan.stages = 2;
  plan.output_blocks = 3;
  Step broadcast = step(StepKind::CclBroadcast, 1, {0});
  broadcast.shards = {{1, {Buffer::Output, 1}, {Buffer::Output, 1}}, {0, output, output}};
  plan.steps = {message(StepKind::Recv, 0, {}, 3, output), broadcast};
  return plan;
}

}  // namespace

TEST_CASE("what arithmetic alone reads, whole, stays where it arrived") {
  const RankPlan plan = exchange();
  const Code code = Job(plan, kShared).code();
  CHECK(readers_of(code, 1) == "reduce");
  CHECK(find(code, Opcode::Copy, 2) == kEnd);
  const Instruction& sum = code.list[find(code, Opcode::Reduce, 3)];
  CHECK(sum.srcs[0].memory == Memory::Scratch);
  CHECK(sum.srcs[1].memory == Memory::Ring);
  CHECK(waits_of(code, find(code, Opcode::Reduce, 3)) == "0e 2f");
  CHECK(waits_of(code, find(code, Opcode::Acknowledge, 2)) == "3f");
  CHECK(readers(plan) == "reduce");  // in a short call, too

  RankPlan shared = plan;  // the cluster's library broadcasts it as well
  shared.steps[4].shards.push_back({0, scratch(1), {Buffer::Output, 0}});
  CHECK(readers(shared) == "reduce ccl_broadcast");
  CHECK(readers(shared, kEightSlices) == "copy");  // two readers, one of which may start too late
  RankPlan reduced = plan;                         // or adds it up
  reduced.steps[4].kind = StepKind::CclReduce;
  reduced.steps[4].shards.push_back({0, scratch(1), {Buffer::Output, 0}});
  CHECK(readers(reduced) == "copy");
  RankPlan passed = plan;  // it is sent on to another rank
  passed.steps[1] = message(StepKind::Send, 1, {}, 5, scratch(1));
  CHECK(readers(passed) == "copy");
  RankPlan part = plan;
  part.steps[3].srcs[1].end = {1, 2};
  CHECK(readers(part) == "copy");
  RankPlan target = plan;  // a sum is written over it
  target.steps[3].dst = scratch(1);
  CHECK(readers(target) == "copy");
  RankPlan awaited = plan;  // a message waits for it
  awaited.steps.push_back(message(StepKind::Send, 3, {2}, 5, scratch(0)));
  CHECK(readers(awaited) == "copy");
  RankPlan other = plan;  // it is as long as another block's slice
  other.steps[3].srcs[1].of = 1;
  CHECK(readers(other) == "copy");
  RankPlan output = plan;
  output.steps[2].dst = {Buffer::Output, 0};
  CHECK(readers(output) == "copy");
}

TEST_CASE("what goes on to another rank through a ring is copied from ring to ring") {
  RankPlan plan = exchange();
  plan.steps.push_back(message(StepKind::Send, 3, {2}, 5, scratch(1)));
  CHECK(readers(plan) == "copy");  // direct: the device's memory is read
  Job job(plan, kShared, kOneSlice);
  CHECK(readers_of(job.code(), 1) == "reduce copy");
  const Code code = job.code();
  const Instruction& out = code.list[find(code, Opcode::Copy, 5)];
  CHECK(out.srcs[0].memory == Memory::Ring);
  CHECK(out.dst.memory == Memory::Ring);
  CHECK(out.srcs[0].message != out.dst.message);
  job.cut(kEightSlices);  // two readers
  CHECK(readers_of(job.code(), 1) == "copy");
  // Sent before it has arrived: lowering does not check the plan's order.
  job.plan.steps.pop_back();
  job.plan.steps[1] = message(StepKind::Send, 1, {}, 5, scratch(1));
  job.cut(kOneSlice);
  CHECK(readers_of(job.code(), 1) == "copy");
}

TEST_CASE("what a broadcast alone reads stays where it arrived, if that writes the output") {
  const RankPlan plan = broadcast_of_output();
  for (const uint64_t count : {kOneSlice, kEightSlices}) {
    const auto stays = [&](RankPlan changed) {
      return readers_of(Job(std::move(changed), kShared, count).code(), 0) == "ccl_broadcast";
    };
    const Code code = Job(plan, kShared, count).code();
    CHECK(stays(plan));
    const Instruction& broadcast = code.list[find(code, Opcode::CclBroadcast, 1)];
    CHECK(broadcast.shards[0].send.memory == Memory::Output);
    CHECK(broadcast.shards[1].send.memory == Memory::Ring);
    CHECK(broadcast.shards[1].recv.memory == Memory::Output);

    RankPlan elsewhere = plan;  // the output would stay unwritten
    elsewhere.steps[1].shards[1].recv = {Buffer::Output, 2};
    CHECK_FALSE(stays(elsewhere));
    RankPlan rooted = plan;  // the root keeps no copy
    rooted.steps[1].shards[1].receiver = 1;
    CHECK_FALSE(stays(rooted));
    RankPlan part = plan;
    part.steps[1].shards[1].send.end = part.steps[1].shards[1].recv.end = {1, 2};
    CHECK_FALSE(stays(part));
    RankPlan sent = plan;  // it is sent on to another rank, from the output
    sent.steps.push_back(message(StepKind::Send, 1, {1}, 5, {Buffer::Output, 0}));
    CHECK_FALSE(stays(sent));
    RankPlan unordered = plan;
    unordered.steps[1].deps = {};
    CHECK_FALSE(stays(unordered));
  }
}

TEST_CASE("a reader must start in time: not later than the ring keeps slices") {
  Job job(exchange(), kShared);
  const auto readers_with = [&](uint32_t unread) {
    job.geometry.lanes[0].unread = unread;
    return readers_of(job.code(), 1);
  };
  // With stages 1 and 2 of a pipeline 3 deep, the sum starts one slice later than the message.
  CHECK(readers_with(1) == "reduce");
  CHECK(readers_with(0) == "copy");
}

TEST_CASE("pinned memory is read in place by the host, and by devices in short calls alone") {
  for (const Reach& reach : {kShared, kStaged}) {
    Job job(exchange(), reach);
    if (reach == kShared) CHECK(readers_of(job.code(), 1) == "reduce");
    job.target.host_memory = false;
    CHECK(readers_of(job.code(), 1) == "copy");
    job.cut(kOneSlice);
    CHECK(readers_of(job.code(), 1) == "reduce");
    job.geometry.by_host = kAllArithmetic;  // the host reads its sources on the device
    CHECK(readers_of(job.code(), 1) == "copy");
  }
  // A device's library can use only device memory.
  Job passing(broadcast_of_output(), kStaged, kOneSlice);
  CHECK(readers_of(passing.code(), 0) == "ccl_broadcast");
  passing.target.host_memory = false;
  CHECK(readers_of(passing.code(), 0) == "copy");
}

TEST_CASE("what is sent, whole, and does nothing else is made where it leaves from") {
  RankPlan plan = exchange();
  CHECK(maker(plan) == "copy");  // the reduction also reads it
  plan.steps[3].srcs = {scratch(1)};
  CHECK(maker(plan) == "copy");  // another stage, so it starts at another time
  plan.steps[1].stage = 0;
  CHECK(maker(plan) == "ccl_reduce");

  RankPlan part = plan;
  part.steps[1].srcs[0].end = {1, 2};
  CHECK(maker(part) == "copy");
  RankPlan input = plan;
  input.steps[0].shards[0].recv = input.steps[1].srcs[0] = {Buffer::Input, 0};
  CHECK(maker(input) == "copy");
  RankPlan twice = plan;
  twice.steps[4].shards.push_back({0, scratch(0), {Buffer::Output, 0}});
  CHECK(maker(twice) == "copy");
  // A message of the same channel comes first, whose place would be reserved later.
  RankPlan behind = plan;
  behind.steps.insert(behind.steps.begin() + 1, message(StepKind::Send, 0, {}, 5, {}));
  for (Step& later : behind.steps) {
    for (uint16_t& dep : later.deps) dep = static_cast<uint16_t>(dep > 0 ? dep + 1 : 0);
  }
  CHECK(maker(behind, 2) == "copy");
  behind.steps[1].peer = 7;
  CHECK(maker(behind, 2) == "ccl_reduce");
}

TEST_CASE("whoever makes a message in the ring takes its place first, and is awaited by the send") {
  const Code code = Job(sends_all_it_reduces(), kShared).code();
  const uint32_t reduce = find(code, Opcode::CclReduce, 0);
  REQUIRE(code.list[reduce - 1].op == Opcode::Reserve);
  CHECK(code.list[reduce - 1].queue == code.list[reduce].queue);
  CHECK(code.list[reduce - 1].message == 0);
  CHECK(code.list[reduce].shards[0].recv.memory == Memory::Ring);
  CHECK(waits_of(code, find(code, Opcode::SendHeader, 1)) == "0f");
  CHECK(find(code, Opcode::Copy, 1) == kEnd);
  CHECK(count_of(code, Opcode::Reserve) == 1);
}

TEST_CASE("one call of the library makes several messages") {
  RankPlan plan = sends_all_it_reduces();
  plan.scratch_blocks = 4;
  plan.steps[0].shards.push_back({0, {}, scratch(3)});
  plan.steps.insert(plan.steps.begin() + 2, message(StepKind::Send, 0, {0}, 5, scratch(3)));
  for (Step& later : plan.steps) {
    for (uint16_t& dep : later.deps) dep = static_cast<uint16_t>(dep > 1 ? dep + 1 : dep);
  }
  CHECK(maker(plan, 1) == "ccl_reduce");
  CHECK(maker(plan, 2) == "ccl_reduce");  // no other message comes between
}

TEST_CASE("devices make nothing in a ring, nor does a host whose arithmetic comes later") {
  RankPlan plan = sends_all_it_reduces();
  plan.steps[0] = step(StepKind::Reduce, 0, {});
  plan.steps[0].srcs = {{Buffer::Input, 0}, {Buffer::Output, 0}};
  plan.steps[0].dst = scratch(0);
  Job job(plan, kShared);
  CHECK(writers_of(job.code(), 0) == "reduce");
  job.geometry.by_host = kAllArithmetic;
  CHECK(writers_of(job.code(), 0) == "copy");
  job.geometry.by_host = 0;
  job.target.host_memory = false;
  CHECK(writers_of(job.code(), 0) == "copy");
}

}  // namespace hetccl::lower
