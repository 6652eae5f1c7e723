// A program lowers its plan once for each kind of call.
#include "exec/program.h"

#include <doctest/doctest.h>

#include <set>

#include "plan/plan.h"

namespace hetccl::exec {
namespace {

using plan::Buffer;
using plan::RankPlan;
using plan::Step;
using plan::StepKind;

constexpr size_t kRing = 64 << 10;
constexpr plan::Choice kChoice{4096, 3};

// Copies into scratch, and sends the copy to rank 1.
RankPlan sending_plan() {
  RankPlan plan;
  plan.scratch_blocks = 1;
  plan.stages = 2;
  Step copy, send;
  copy.kind = StepKind::Copy;
  copy.srcs = {{Buffer::Input, 0}};
  copy.dst = send.srcs.emplace_back(plan::Region{Buffer::Scratch, 0});
  send.kind = StepKind::Send;
  send.peer = 1;
  send.stage = 1;
  send.deps = {0};
  plan.steps = {copy, send};
  return plan;
}

Program bound(RankPlan plan) {
  Program program(std::move(plan));
  lower::Target target;
  for (const int peer : program.peers()) target.lanes.push_back({peer, true, kRing});
  program.bind(std::move(target));
  return program;
}

lower::CallShape shape(uint64_t count, plan::Choice choice = kChoice) {
  return {.type = DataType::Int8, .count = count, .choice = choice};
}

}  // namespace

TEST_CASE("calls of the same kind share their Code, and each has its own geometry") {
  Program program = bound(sending_plan());
  const Program::Lowered first = program.lower_for(shape(1 << 16)).value();
  const Program::Lowered longer = program.lower_for(shape(1 << 17)).value();
  CHECK(first.code == longer.code);
  CHECK(first.n_slices == 16);
  CHECK(longer.n_slices == 32);
  // The call differs in type and slices.
  lower::CallShape wide = shape(1 << 14);
  wide.type = DataType::Float32;
  CHECK(program.lower_for(wide).value().code == first.code);
  CHECK(program.lower_for(shape(1 << 17, {8192, 3})).value().code == first.code);
}

TEST_CASE("another kind of call has other Code") {
  Program program = bound(sending_plan());
  std::set<const lower::Code*> codes;
  codes.insert(program.lower_for(shape(1 << 16)).value().code);
  codes.insert(program.lower_for(shape(1 << 16, {4096, 1})).value().code);   // another depth
  codes.insert(program.lower_for(shape(2 * 4096)).value().code);             // fewer slots
  codes.insert(program.lower_for(shape(64)).value().code);                   // short
  codes.insert(program.lower_for(shape(1 << 20, {kRing, 3})).value().code);  // without the ring
  lower::CallShape by_host = shape(1 << 16);
  by_host.by_host = lower::kAllArithmetic;
  codes.insert(program.lower_for(by_host).value().code);
  CHECK(codes.size() == 6);
  // All of them are kept.
  for (int round = 0; round < 2; ++round) {
    codes.insert(program.lower_for(shape(64)).value().code);
    codes.insert(program.lower_for(shape(1 << 16)).value().code);
    codes.insert(program.lower_for(shape(2 * 4096)).value().code);
  }
  CHECK(codes.size() == 6);
}

TEST_CASE("a call like the last one is not even cut again") {
  Program program = bound(sending_plan());
  const Program::Lowered first = program.lower_for(shape(1000)).value();
  const Program::Lowered again = program.lower_for(shape(1000)).value();
  CHECK(first.code == again.code);
  CHECK(first.n_slices == again.n_slices);
  // A call that looks alike but is uneven is cut again.
  const uint64_t counts[] = {1000}, offsets[] = {0};
  lower::CallShape uneven = shape(1 << 16);
  REQUIRE(program.lower_for(uneven).ok());
  uneven.input = {counts, offsets};
  CHECK(program.lower_for(uneven).value().n_slices == 16);
  uneven.input = {};
  uneven.choice.slice_bytes = 8192;
  CHECK(program.lower_for(uneven).value().n_slices == 8);
}

TEST_CASE("Code stays where it is while more kinds come") {
  Program program = bound(sending_plan());
  const Program::Lowered first = program.lower_for(shape(1 << 16, {64, 0})).value();
  const uint32_t epilogue = first.code->epilogue;
  for (uint32_t depth = 1; depth < 40; ++depth) {
    REQUIRE(program.lower_for(shape(1 << 16, {64, depth})).ok());
  }
  CHECK(program.lower_for(shape(1 << 16, {64, 0})).value().code == first.code);
  CHECK(first.code->epilogue == epilogue);
}

TEST_CASE("a program knows its peers, and whether it is one call of the library") {
  CHECK(Program(sending_plan()).peers() == std::vector<int>{1});
  CHECK(!Program(sending_plan()).is_one_library_call());
  CHECK(!Program(sending_plan()).is_bound());
  CHECK(bound(sending_plan()).is_bound());
  RankPlan plan;
  plan.slicing = plan::Slicing::None;
  plan.steps.resize(1);
  plan.steps[0].kind = StepKind::CclBarrier;
  Program program = bound(plan);
  CHECK(program.is_one_library_call());
  CHECK(program.lower_for(shape(0)).value().code->one_library_call);
}

TEST_CASE("a malformed plan is refused when it is to run") {
  RankPlan plan = sending_plan();
  plan.name = "test";
  plan.steps[1].srcs.clear();
  Program program = bound(plan);
  const auto lowered = program.lower_for(shape(1000));
  CHECK(lowered.status().code() == ErrorCode::InternalError);
  CHECK(lowered.status().message().find("plan test: step 1 of 2") != std::string::npos);
}

}  // namespace hetccl::exec
