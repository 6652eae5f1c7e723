#include "exec/program.h"

#include <doctest/doctest.h>

#include <algorithm>

namespace {

using hetccl::Code;
using hetccl::exec::Program;
using hetccl::exec::Queue;
using hetccl::exec::StepInfo;
using hetccl::exec::Wait;
using hetccl::plan::Buffer;
using hetccl::plan::RankPlan;
using hetccl::plan::Region;
using hetccl::plan::Step;
using hetccl::plan::StepKind;

Region scratch(uint32_t block) {
  return {Buffer::Scratch, block};
}

Step step(StepKind kind, uint16_t stage, std::vector<uint16_t> deps) {
  Step result;
  result.kind = kind;
  result.stage = stage;
  result.deps = std::move(deps);
  return result;
}

Step message(StepKind kind, uint16_t stage, std::vector<uint16_t> deps, int peer, Region region) {
  Step result = step(kind, stage, std::move(deps));
  result.peer = peer;
  if (kind == StepKind::Send) result.srcs = {region};
  if (kind == StepKind::Recv) result.dst = region;
  return result;
}

// 0: the cluster reduces into scratch 0; 1: sends it to rank 5; 2: receives scratch 1 from rank 3;
// 3: reduces both into scratch 2; 4: the cluster broadcasts scratch 2.
RankPlan exchange() {
  RankPlan plan;
  plan.name = "test";
  plan.scratch_blocks = 3;
  plan.stages = 4;
  Step reduce = step(StepKind::CclReduce, 0, {});
  reduce.shards = {{0, {}, scratch(0)}};
  Step sum = step(StepKind::Reduce, 2, {0, 2});
  sum.srcs = {scratch(0), scratch(1)};
  sum.dst = scratch(2);
  Step broadcast = step(StepKind::CclBroadcast, 3, {3});
  broadcast.shards = {{0, scratch(2), {Buffer::Output, 0}}};
  plan.steps = {reduce, message(StepKind::Send, 1, {0}, 5, scratch(0)),
                message(StepKind::Recv, 1, {}, 3, scratch(1)), sum, broadcast};
  return plan;
}

// "3f 4e": by flag on step 3, by event on step 4.
std::string text(std::vector<Wait> waits) {
  std::sort(waits.begin(), waits.end(), [](Wait a, Wait b) { return a.step < b.step; });
  std::string text;
  for (const Wait wait : waits) {
    text += (text.empty() ? "" : " ") + std::to_string(wait.step) + (wait.by_flag ? "f" : "e");
  }
  return text;
}

Program compiled(RankPlan plan) {
  auto program = Program::compile(std::move(plan));
  REQUIRE(program.ok());
  return std::move(program).value();
}

void check_refused(RankPlan plan, const char* why) {
  const auto program = Program::compile(std::move(plan));
  CHECK(program.status().code() == Code::InternalError);
  CAPTURE(program.status().message());
  CHECK(program.status().message().find(why) != std::string::npos);
}

}  // namespace

TEST_CASE("steps go to their queues, messages to the lanes of their peers") {
  const Program program = compiled(exchange());
  const Queue queues[] = {Queue::Ccl, Queue::Send, Queue::Recv, Queue::Work, Queue::Ccl};
  for (size_t s = 0; s < 5; ++s) CHECK(program.steps[s].queue == queues[s]);
  CHECK(program.peers == std::vector<int>{3, 5});
  CHECK(program.steps[1].lane == 1);
  CHECK(program.steps[2].lane == 0);
  CHECK(program.plan.name == "test");
}

TEST_CASE("dependencies are flags where the wire takes part, else events") {
  const Program program = compiled(exchange());
  CHECK(text(program.steps[0].deps).empty());
  CHECK(text(program.steps[1].deps) == "0f");
  CHECK(text(program.steps[3].deps) == "0e 2f");
  CHECK(text(program.steps[4].deps) == "3e");
  CHECK(program.steps[0].writes_flag);     // for the send
  CHECK(program.steps[0].records_event);   // for the reduction
  CHECK(program.steps[2].writes_flag);     // for the reduction
  CHECK(!program.steps[2].records_event);  // no stream runs it
  CHECK(!program.steps[4].writes_flag);    // nobody waits for its flag
}

TEST_CASE("streams keep order by themselves: no wait between steps of one") {
  RankPlan plan;
  plan.scratch_blocks = 1;
  Step first = step(StepKind::CclReduce, 0, {});
  first.shards = {{0, {}, scratch(0)}};
  Step second = step(StepKind::CclBroadcast, 0, {0});
  second.shards = {{0, scratch(0), {}}};
  plan.steps = {first, second};
  const Program program = compiled(plan);
  for (const StepInfo& info : program.steps) {
    CHECK(text(info.deps).empty());
    CHECK(text(info.recycled).empty());
    CHECK(!info.records_event);
    CHECK(!info.writes_flag);
  }
}

TEST_CASE("a slot of scratch is taken again once all its users have left it") {
  const Program program = compiled(exchange());
  CHECK(text(program.steps[0].recycled) == "1f 3e");        // scratch 0: sent and reduced
  CHECK(text(program.steps[2].recycled) == "2f 3f");        // scratch 1: a message waits for itself
  CHECK(text(program.steps[3].recycled) == "0e 1f 2f 4e");  // all three
  CHECK(program.steps[3].writes_flag);  // the next receive into scratch 1 waits for it
  CHECK(program.steps[4].records_event);
}

TEST_CASE(
    "a message without dependencies waits for the user's stream; one that nobody awaits is "
    "joined") {
  const Program program = compiled(exchange());
  CHECK(program.steps[2].needs_start);
  CHECK(!program.steps[1].needs_start);
  CHECK(program.steps[1].joined);
  CHECK(program.steps[1].writes_flag);
  CHECK(!program.steps[2].joined);  // the reduction awaits it
  CHECK(!program.steps[4].joined);  // streams are joined by events
}

TEST_CASE("what arithmetic alone reads, whole, may stay where it arrived") {
  const Program program = compiled(exchange());
  CHECK(program.steps[2].read_alone);
  CHECK(program.steps[3].arrivals == std::vector<int>{-1, 2});
  CHECK(program.steps[4].arrivals.empty());

  CHECK_FALSE(program.steps[2].read_by_library);
  CHECK(program.steps[2].reader == 3);

  const auto stays = [](RankPlan plan) { return compiled(std::move(plan)).steps[2].read_alone; };
  RankPlan shared = exchange();  // the cluster's library broadcasts it, too
  shared.steps[4].shards.push_back({0, scratch(1), {Buffer::Output, 0}});
  CHECK(stays(shared));
  CHECK(compiled(shared).steps[2].read_by_library);
  CHECK(compiled(shared).steps[2].reader == -1);
  RankPlan reduced = exchange();  // or adds it up
  reduced.steps[4].kind = StepKind::CclReduce;
  reduced.steps[4].shards.push_back({0, scratch(1), {Buffer::Output, 0}});
  CHECK_FALSE(stays(reduced));
  RankPlan passed = exchange();  // it goes on to another rank
  passed.steps[1] = message(StepKind::Send, 1, {}, 5, scratch(1));
  CHECK_FALSE(stays(passed));
  RankPlan part = exchange();
  part.steps[3].srcs[1].end = {1, 2};
  CHECK_FALSE(stays(part));
  RankPlan target = exchange();  // a sum is written over it
  target.steps[3].dst = scratch(1);
  CHECK_FALSE(stays(target));
  RankPlan awaited = exchange();  // a message waits for it
  awaited.steps.push_back(message(StepKind::Send, 3, {2}, 5, scratch(0)));
  CHECK_FALSE(stays(awaited));
  RankPlan other = exchange();  // as long as another block's slice
  other.steps[3].srcs[1].of = 1;
  CHECK_FALSE(stays(other));
  RankPlan output = exchange();
  output.steps[2].dst = {Buffer::Output, 0};
  CHECK_FALSE(stays(output));
}

TEST_CASE("what a broadcast alone reads may stay where it arrived, if that writes the output") {
  const Region output{Buffer::Output, 0};
  RankPlan plan;
  plan.stages = 2;
  Step broadcast = step(StepKind::CclBroadcast, 1, {0});
  broadcast.shards = {{1, {Buffer::Output, 1}, {Buffer::Output, 1}}, {0, output, output}};
  plan.steps = {message(StepKind::Recv, 0, {}, 3, output), broadcast};
  const auto stays = [](RankPlan changed) {
    return compiled(std::move(changed)).steps[0].read_alone;
  };
  const Program program = compiled(plan);
  CHECK(program.steps[0].read_alone);
  CHECK(program.steps[0].read_by_library);
  CHECK(program.steps[0].reader == 1);
  CHECK(program.steps[1].arrivals == std::vector<int>{-1, 0});

  RankPlan elsewhere = plan;  // the output would lack it
  elsewhere.steps[1].shards[1].recv = {Buffer::Output, 2};
  CHECK_FALSE(stays(elsewhere));
  RankPlan rooted = plan;  // the root keeps no copy
  rooted.steps[1].shards[1].receiver = 1;
  CHECK_FALSE(stays(rooted));
  RankPlan part = plan;
  part.steps[1].shards[1].send.end = part.steps[1].shards[1].recv.end = {1, 2};
  CHECK_FALSE(stays(part));
  RankPlan sent = plan;  // it goes on to another rank, from the output
  sent.steps.push_back(message(StepKind::Send, 1, {1}, 5, output));
  CHECK_FALSE(stays(sent));
  RankPlan unordered = plan;
  unordered.steps[1].deps = {};
  CHECK_FALSE(stays(unordered));
}

TEST_CASE("what is sent, whole, and does nothing else may be made where it leaves from") {
  RankPlan plan = exchange();
  CHECK(compiled(plan).steps[1].maker == -1);  // the reduction reads it, too
  plan.steps[3].srcs = {scratch(1)};
  CHECK(compiled(plan).steps[1].maker == -1);  // of another stage, which starts at another time
  plan.steps[1].stage = 0;
  const Program program = compiled(plan);
  CHECK(program.steps[1].maker == 0);
  CHECK(program.steps[0].makes == std::vector<uint16_t>{1});
  CHECK(program.steps[0].departures == std::vector<int>{1});

  const auto maker = [](RankPlan changed) { return compiled(std::move(changed)).steps[1].maker; };
  RankPlan part = plan;
  part.steps[1].srcs[0].end = {1, 2};
  CHECK(maker(part) == -1);
  RankPlan input = plan;
  input.steps[0].shards[0].recv = input.steps[1].srcs[0] = {Buffer::Input, 0};
  CHECK(maker(input) == -1);
  RankPlan twice = plan;
  twice.steps[4].shards.push_back({0, scratch(0), {Buffer::Output, 0}});
  CHECK(maker(twice) == -1);
  // Another message of the channel comes first, whose place would be taken later.
  RankPlan behind = plan;
  behind.steps.insert(behind.steps.begin() + 1, message(StepKind::Send, 0, {}, 5, {}));
  for (Step& later : behind.steps) {
    for (uint16_t& dep : later.deps) dep = static_cast<uint16_t>(dep > 0 ? dep + 1 : 0);
  }
  CHECK(compiled(behind).steps[2].maker == -1);
  behind.steps[1].peer = 7;
  CHECK(compiled(behind).steps[2].maker == 0);
}

TEST_CASE("a plan that breaks its rules is an internal error that names the step") {
  RankPlan later = exchange();
  later.steps[1].deps = {3};
  check_refused(later, "step 1 depends on step 3");

  RankPlan itself = exchange();
  itself.steps[3].deps = {3};
  check_refused(itself, "step 3 depends on step 3");

  RankPlan beyond = exchange();
  beyond.steps[0].deps = {999};
  check_refused(beyond, "step 0 depends on step 999");

  RankPlan stage = exchange();
  stage.steps[3].stage = 0;
  check_refused(stage, "step 3 depends on step 2");

  RankPlan block = exchange();
  block.scratch_blocks = 2;
  check_refused(block, "scratch block 2 of 2");
}

TEST_CASE("a step that lacks what its kind needs, or is of no stage, is refused") {
  RankPlan stage = exchange();
  stage.steps[4].stage = 4;
  check_refused(stage, "step 4 (stage 4 of 4");

  RankPlan nobody = exchange();
  nobody.steps[1].peer = -1;
  check_refused(nobody, "step 1 (stage 1 of 4, peer -1, 1 sources) is malformed");
  nobody = exchange();
  nobody.steps[2].peer = -1;
  check_refused(nobody, "step 2");

  RankPlan nothing = exchange();
  nothing.steps[1].srcs.clear();
  check_refused(nothing, "step 1 (stage 1 of 4, peer 5, 0 sources) is malformed");
  nothing.steps[1].srcs = {scratch(0), scratch(1)};
  check_refused(nothing, "2 sources");

  RankPlan sum = exchange();
  sum.steps[3].srcs.clear();
  check_refused(sum, "step 3");
  sum.steps[3].srcs.assign(hetccl::plan::kMaxReduceSources + 1, scratch(0));
  check_refused(sum, "step 3");

  RankPlan copy = exchange();
  copy.steps[3].kind = StepKind::Copy;  // of two sources
  check_refused(copy, "step 3");
}

TEST_CASE("an empty plan is a program that does nothing") {
  const Program program = compiled({});
  CHECK(program.steps.empty());
  CHECK(program.peers.empty());
}
