// Lowering as a whole: from a plan to Code.
#include "lower/lower.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "lower/testing.h"

namespace hetccl::lower {
namespace {

using namespace testing;

void check_refused(RankPlan plan, const char* why) {
  const Job job(std::move(plan));
  const auto code = lower(job.plan, job.target, job.geometry);
  CHECK(code.status().code() == ErrorCode::InternalError);
  CAPTURE(code.status().message());
  CHECK(code.status().message().find(why) != std::string::npos);
}

const Instruction& at(const Code& code, Opcode op, uint16_t step) {
  const uint32_t index = find(code, op, step);
  REQUIRE(index != kEnd);
  return code.list[index];
}

}  // namespace

TEST_CASE("steps go to their queues, messages to the lanes of their peers") {
  const Code code = Job(exchange()).code();
  CHECK(at(code, Opcode::CclReduce, 0).queue == stream_queue(QueueKind::Ccl));
  CHECK(at(code, Opcode::Send, 1).queue == lane_queue(1, QueueKind::Send));
  CHECK(at(code, Opcode::Recv, 2).queue == lane_queue(0, QueueKind::Recv));
  CHECK(at(code, Opcode::Reduce, 3).queue == stream_queue(QueueKind::Work));
  CHECK(at(code, Opcode::CclBroadcast, 4).queue == stream_queue(QueueKind::Ccl));
  REQUIRE(code.lanes.size() == 2);
  CHECK(code.lanes[0].peer == 3);
  CHECK(code.lanes[1].peer == 5);
  CHECK(code.messages[0].sends);
  CHECK(code.messages[0].lane == 1);
  CHECK(code.messages[1].lane == 0);
  CHECK(code.messages.size() == 2);
  CHECK(code.n_slots == 4);
  CHECK(code.scratch_blocks == 3);
  CHECK(code.last_lag == 3);
  for (uint16_t step = 0; step < 5; ++step) {
    const auto of_step = [&](const Instruction& one) {
      return one.step == step && info_of(one.op).is(OpcodeInfo::kTraced);
    };
    CHECK(std::count_if(code.list.begin(), code.list.end(), of_step) == 1);
  }
}

TEST_CASE("dependencies are flags where the wire takes part, else events") {
  const Code code = Job(exchange()).code();
  CHECK(waits_of(code, find(code, Opcode::Send, 1)) == "0f");
  CHECK(waits_of(code, find(code, Opcode::Reduce, 3)) == "0e 2f");
  CHECK(waits_of(code, find(code, Opcode::CclBroadcast, 4)) == "3e");
  CHECK(at(code, Opcode::CclReduce, 0).done != kNoSync);          // the send waits for it
  CHECK(at(code, Opcode::Recv, 2).done != kNoSync);               // the reduction waits for it
  CHECK(at(code, Opcode::CclBroadcast, 4).done == kNoSync);       // nothing waits for its flag
  CHECK_FALSE(code.syncs[at(code, Opcode::Recv, 2).done].event);  // it is not on a stream
  // A stream signals right behind the instruction; the reduction's end is signalled both ways.
  const uint32_t reduce = find(code, Opcode::CclReduce, 0);
  for (const uint32_t i : {reduce + 1, reduce + 2}) {
    CHECK(code.list[i].op == Opcode::Signal);
    CHECK(code.list[i].queue == stream_queue(QueueKind::Ccl));
    CHECK(code.syncs[code.list[i].sync].event == (i == reduce + 2));
    CHECK(code.syncs[code.list[i].sync].step == 0);
  }
}

TEST_CASE("streams keep order by themselves: no wait between instructions of one") {
  RankPlan plan;
  plan.scratch_blocks = 1;
  Step first = step(StepKind::CclReduce, 0, {});
  first.shards = {{0, {}, scratch(0)}};
  Step second = step(StepKind::CclBroadcast, 0, {0});
  second.shards = {{0, scratch(0), {}}};
  plan.steps = {first, second};
  const Code code = Job(plan).code();
  CHECK(text_of(code, code.body, code.epilogue) == "ccl_reduce ccl; ccl_broadcast ccl");
  CHECK(at(code, Opcode::CclReduce, 0).done == kNoSync);
  CHECK(at(code, Opcode::CclBroadcast, 1).done == kNoSync);
}

TEST_CASE("a slot of scratch is taken again once all its users have left it") {
  const Code code = Job(exchange()).code();
  // Scratch 0 was sent and reduced. The broadcast, on the same stream, has waited for the
  // reduction.
  CHECK(waits_of(code, find(code, Opcode::CclReduce, 0)) == "1f-4");
  // Scratch 1: the reduction has read the previous message.
  CHECK(waits_of(code, find(code, Opcode::Recv, 2)) == "3f-4");
  CHECK(at(code, Opcode::Reduce, 3).done != kNoSync);
  // Scratch 2: the cluster's reduction of this slice comes after the broadcast of that slice.
  CHECK(waits_of(code, find(code, Opcode::Reduce, 3)) == "0e 2f");
}

TEST_CASE("the prologue starts queues that nothing else holds back") {
  const Code code = Job(exchange()).code();
  // The send waits for the cluster's reduction; the sum waits for that and for the receive.
  CHECK(text_of(code, 0, code.body) ==
        "acquire user; signal user; signal user; wait ccl; wait recv from rank 3");
  CHECK(code.syncs[code.list[1].sync].event);
  CHECK(code.list[2].sync == kStarted);
  CHECK(code.list[3].sync == code.list[1].sync);
  CHECK(code.list[4].sync == kStarted);
}

TEST_CASE("the epilogue joins streams that were used, and messages that nobody awaits") {
  Code code = Job(exchange()).code();
  const auto epilogue = [&] { return text_of(code, code.epilogue, end_of(code)); };
  // The library's stream ends last, after that for arithmetic. The send leaves from scratch memory,
  // not from the caller's.
  CHECK(epilogue() == "signal ccl; wait user; finish user");
  CHECK(text_of(code, code.list[code.epilogue + 1]) == "4e");

  RankPlan sends = exchange();  // from the caller's memory
  sends.steps[1].srcs = {{Buffer::Input, 0}};
  sends.steps[1].deps = {};
  code = Job(sends).code();
  CHECK(epilogue() == "wait user; signal ccl; wait user; finish user");
  CHECK(text_of(code, code.list[code.epilogue]) == "1f");
  CHECK(code.list[code.epilogue].sync == at(code, Opcode::Send, 1).done);

  RankPlan last = exchange();  // the arithmetic ends separately
  last.steps[4] = step(StepKind::Copy, 3, {3});
  last.steps[4].srcs = {scratch(2)};
  last.steps[4].dst = {Buffer::Output, 0};
  code = Job(last).code();
  CHECK(epilogue() == "signal work; wait user; finish user");

  code = Job({}).code();
  CHECK(epilogue() == "finish user");
}

TEST_CASE("a short call is all on the user's stream, and waits for the wire alone") {
  for (const Reach& reach : {kDirect, kStaged, kShared}) {
    const Code code = Job(exchange(), reach, kOneSlice).code();
    CAPTURE(to_json(code));
    CHECK_FALSE(code.rotates);
    CHECK(count_of(code, Opcode::Acquire) == 0);
    for (const Instruction& one : code.list) {
      if (!is_stream(one.queue)) continue;
      CHECK(one.queue == kUser);
      if (one.op != Opcode::Wait) continue;
      const uint16_t step = code.syncs[one.sync].step;
      CHECK((step == 1 || step == 2));  // messages
    }
    for (const Sync& sync : code.syncs) CHECK_FALSE(sync.event);
    CHECK(waits_of(code, find(code, Opcode::Reduce, 3)) == "2f");
  }
}

TEST_CASE("the user's stream runs a plan of one step, which gives credit slice by slice") {
  for (const StepKind kind : {StepKind::Send, StepKind::Recv}) {
    RankPlan plan;
    plan.steps = {message(kind, 0, {}, 3, {Buffer::Output, 0})};
    const Code code = Job(plan, kShared).code();
    CAPTURE(to_json(code));
    CHECK(count_of(code, Opcode::Copy) == 1);
    for (const Instruction& one : code.list) CHECK((!is_stream(one.queue) || one.queue == kUser));
    for (const Sync& sync : code.syncs) CHECK_FALSE(sync.event);
    if (kind == StepKind::Send) continue;
    CHECK(waits_of(code, find(code, Opcode::Acknowledge, 0)) == "0f");
  }
}

TEST_CASE("in a short call, one signal tells of all reads") {
  const Code code = Job(exchange(), kShared, kOneSlice).code();
  CHECK(waits_of(code, find(code, Opcode::Acknowledge, 2)) == "finish");
  const Code long_call = Job(exchange(), kShared).code();
  CHECK(waits_of(long_call, find(long_call, Opcode::Acknowledge, 2)) == "3f");
}

TEST_CASE("messages are staged by lane, not by rank") {
  RankPlan plan = exchange();
  plan.steps.push_back(message(StepKind::Send, 3, {3}, 7, scratch(2)));
  Job job(plan);
  job.target.lanes = {{.peer = 3}, {.peer = 5, .direct = false}, {.peer = 7, .ring_bytes = kRing}};
  job.cut(kEightSlices);
  const Code code = job.code();
  CHECK(code.staged_blocks == 1);
  CHECK(at(code, Opcode::Recv, 2).dst.memory == Memory::Scratch);  // straight into the device
  CHECK(at(code, Opcode::Send, 1).srcs[0].memory == Memory::Staging);
  CHECK(at(code, Opcode::SendHeader, 5).srcs[0].memory == Memory::Ring);
  CHECK(find(code, Opcode::Copy, 2) == kEnd);
  for (const uint16_t sent : {uint16_t{1}, uint16_t{5}}) {
    CHECK(at(code, Opcode::Copy, sent).queue == stream_queue(QueueKind::Out));
    CHECK(at(code, Opcode::Copy, sent).srcs[0].memory == Memory::Scratch);
  }
  CHECK(count_of(code, Opcode::Reserve) == 1);
  CHECK(count_of(code, Opcode::Locate) == 0);
}

TEST_CASE("a call takes a turn of buffers if it is long, and works in some") {
  CHECK(Job(exchange()).code().rotates);
  RankPlan bare;
  bare.steps = {message(StepKind::Recv, 0, {}, 3, {Buffer::Output, 0})};
  CHECK_FALSE(Job(bare).code().rotates);
  const Code staged = Job(bare, kStaged).code();
  CHECK(staged.rotates);
  // An early message must not overwrite data that the previous call has yet to read.
  CHECK(text_of(staged, 0, staged.body).find("acquire recv from rank 3") != std::string::npos);
}

TEST_CASE("a plan of one call of the library becomes that call and nothing else") {
  RankPlan plan;
  plan.slicing = plan::Slicing::None;
  plan.steps = {step(StepKind::CclAllReduce, 0, {})};
  plan.steps[0].srcs = {{Buffer::Input, 0}};
  plan.steps[0].dst = {Buffer::Output, 0};
  Job job(plan);
  Code code = job.code();
  CHECK(code.one_library_call);
  CHECK(text_of(code, 0, end_of(code)) == "ccl_all_reduce user; finish user");
  // A trace needs the beginning and the end.
  job.target.observed = true;
  code = job.code();
  CHECK(text_of(code, 0, end_of(code)) ==
        "signal user; ccl_all_reduce user; signal user; finish user");
  // Cut into slices, it is one rank's part of a plan over several clusters.
  job.plan.slicing = plan::Slicing::Agreed;
  job.cut(kEightSlices);
  CHECK_FALSE(job.code().one_library_call);
  job.plan.slicing = plan::Slicing::None;
  job.plan.steps[0].kind = StepKind::Copy;
  CHECK_FALSE(job.code().one_library_call);
}

TEST_CASE("a trace sees the end of every step") {
  Job job(exchange(), kShared);
  job.target.observed = true;
  const Code code = job.code();
  for (uint32_t i = code.body; i < code.epilogue; ++i) {
    if (info_of(code.list[i].op).is(OpcodeInfo::kTraced)) CHECK(code.list[i].done != kNoSync);
  }
}

TEST_CASE("a rank's part of a sum that adds nothing is the identity, which is filled once") {
  RankPlan plan = exchange();
  plan.steps[0].shards[0].send = {Buffer::Identity, 0};
  const Code code = Job(plan).code();
  CHECK(count_of(code, Opcode::FillIdentity) == 1);
  CHECK(code.uses_identity);
  const uint32_t fill = code.body - 1;
  CHECK(code.list[fill].op == Opcode::FillIdentity);
  CHECK(code.list[fill].queue == stream_queue(QueueKind::Ccl));
  CHECK(count_of(Job(exchange()).code(), Opcode::FillIdentity) == 0);
}

TEST_CASE("the host does the arithmetic that the device cannot, in memory of its own") {
  Job job(exchange());
  job.geometry.by_host = arithmetic_of(true, false, false);
  CHECK(count_of(job.code(), Opcode::Reduce) == 1);  // a sum
  job.plan.steps[3].average = true;
  const Code code = job.code();
  CHECK(count_of(code, Opcode::Reduce) == 0);
  const Instruction& one = code.list[find(code, Opcode::HostReduce, 3)];
  CHECK(code.host_reduces == 1);
  CHECK(code.host_sources == 2);
  bool writes_there = false;
  for_each_effect(one, 0, [&](const Operand& operand, bool writes, size_t) {
    writes_there |= writes && operand.memory == Memory::Host;
  });
  CHECK(writes_there);
  job.plan.steps[3].srcs[1].encoded = true;
  CHECK(count_of(job.code(), Opcode::Reduce) == 1);
  job.geometry.by_host = kAllArithmetic;
  CHECK(count_of(job.code(), Opcode::HostReduce) == 1);
}

TEST_CASE("a plan that breaks its rules is an internal error that names the step") {
  RankPlan later = exchange();
  later.steps[1].deps = {3};
  check_refused(later, "plan test: step 1 of 5 is malformed");

  RankPlan itself = exchange();
  itself.steps[3].deps = {3};
  check_refused(itself, "step 3");

  RankPlan beyond = exchange();
  beyond.steps[0].deps = {999};
  check_refused(beyond, "step 0");

  RankPlan stage = exchange();
  stage.steps[3].stage = 0;
  check_refused(stage, "step 3");

  RankPlan block = exchange();
  block.scratch_blocks = 2;
  check_refused(block, "step 3");
}

TEST_CASE("a step that lacks what its kind needs, or is of no stage, is refused") {
  RankPlan stage = exchange();
  stage.steps[4].stage = 4;
  check_refused(stage, "step 4");

  RankPlan nobody = exchange();
  nobody.steps[1].peer = -1;
  check_refused(nobody, "step 1");
  nobody = exchange();
  nobody.steps[2].peer = -1;
  check_refused(nobody, "step 2");

  RankPlan nothing = exchange();
  nothing.steps[1].srcs.clear();
  check_refused(nothing, "step 1");
  nothing.steps[1].srcs = {scratch(0), scratch(1)};
  check_refused(nothing, "step 1");

  RankPlan sum = exchange();
  sum.steps[3].srcs.clear();
  check_refused(sum, "step 3");
  sum.steps[3].srcs.assign(plan::kMaxReduceSources + 1, scratch(0));
  check_refused(sum, "step 3");

  RankPlan copy = exchange();
  copy.steps[3].kind = StepKind::Copy;  // two sources
  check_refused(copy, "step 3");
}

TEST_CASE("an empty plan is Code that does nothing") {
  const Job job({});
  const Code code = job.code();
  CHECK(code.body == code.epilogue);
  CHECK(code.lanes.empty());
  CHECK(code.messages.empty());
  CHECK(code.list.back().op == Opcode::Finish);
  CHECK(peers_of(job.plan).empty());
}

}  // namespace hetccl::lower
