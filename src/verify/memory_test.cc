// Tests the detection of unordered uses of memory, and the division of slices into cells.
#include "verify/memory.h"

#include <doctest/doctest.h>

#include "golden/random_topology.h"

namespace hetccl::verify {
namespace {

constexpr Cells::Range kAll{0, 4};

// A clock that knows `count` completions of `thread`.
Clock knowing(ThreadId thread, uint32_t count) {
  Clock clock;
  clock.set(thread, count);
  return clock;
}

}  // namespace

TEST_CASE("reads need no order among each other") {
  ModelMemory memory;
  const uint32_t place = memory.add(4);
  CHECK(memory.read(place, kAll, {}, {1, 1, 10}) == nullptr);
  CHECK(memory.read(place, kAll, {}, {2, 1, 20}) == nullptr);
  CHECK(memory.read(place, kAll, {}, {1, 2, 11}) == nullptr);
}

TEST_CASE("a read conflicts with a write that may not be complete") {
  ModelMemory memory;
  const uint32_t place = memory.add(4);
  CHECK(memory.write(place, kAll, {}, {1, 3, 10}) == nullptr);
  const Use* before = memory.read(place, kAll, knowing(1, 2), {2, 1, 20});
  REQUIRE(before != nullptr);
  CHECK(before->index == 10);
  CHECK(memory.read(place, kAll, knowing(1, 3), {2, 1, 20}) == nullptr);
  CHECK(memory.read(place, kAll, knowing(1, 4), {2, 2, 21}) == nullptr);
}

TEST_CASE("a write conflicts with every read since the last one, and with that") {
  ModelMemory memory;
  const uint32_t place = memory.add(4);
  CHECK(memory.write(place, kAll, {}, {1, 1, 10}) == nullptr);
  const Use* before = memory.write(place, kAll, {}, {2, 1, 20});
  REQUIRE(before != nullptr);
  CHECK(before->index == 10);

  Clock known = knowing(1, 1);
  CHECK(memory.read(place, kAll, known, {3, 1, 30}) == nullptr);
  CHECK(memory.read(place, kAll, known, {4, 1, 40}) == nullptr);
  known.set(4, 1);
  before = memory.write(place, kAll, known, {2, 1, 20});
  REQUIRE(before != nullptr);
  CHECK(before->index == 30);
  known.set(3, 1);
  CHECK(memory.write(place, kAll, known, {2, 1, 20}) == nullptr);
  // The write came after those reads, so to know of the write is to know of them.
  CHECK(memory.write(place, kAll, knowing(2, 1), {5, 1, 50}) == nullptr);
}

TEST_CASE("of a thread's reads the last one counts") {
  ModelMemory memory;
  const uint32_t place = memory.add(4);
  CHECK(memory.read(place, kAll, {}, {3, 1, 30}) == nullptr);
  CHECK(memory.read(place, kAll, {}, {3, 2, 31}) == nullptr);
  const Use* before = memory.write(place, kAll, knowing(3, 1), {2, 1, 20});
  REQUIRE(before != nullptr);
  CHECK(before->index == 31);
}

TEST_CASE("an instruction may write what it reads itself, and no other may") {
  ModelMemory memory;
  const uint32_t place = memory.add(4);
  const Use own{1, 1, 10};
  CHECK(memory.read(place, kAll, {}, own) == nullptr);
  CHECK(memory.write(place, kAll, {}, own) == nullptr);
  CHECK(memory.read(place, kAll, knowing(1, 1), {2, 1, 20}) == nullptr);
  const Use* before = memory.write(place, kAll, knowing(1, 1), {3, 1, 30});
  REQUIRE(before != nullptr);
  CHECK(before->index == 20);
  // A later instruction of the same thread is another user.
  const uint32_t other = memory.add(4);
  CHECK(memory.read(other, kAll, {}, own) == nullptr);
  CHECK(memory.write(other, kAll, {}, {1, 2, 11}) != nullptr);
}

TEST_CASE("uses of other cells, and of other places, are none of a use's business") {
  ModelMemory memory;
  const uint32_t place = memory.add(4), other = memory.add(4);
  CHECK(memory.write(place, {0, 2}, {}, {1, 1, 10}) == nullptr);
  CHECK(memory.write(place, {2, 4}, {}, {2, 1, 20}) == nullptr);
  CHECK(memory.write(other, kAll, {}, {3, 1, 30}) == nullptr);
  CHECK(memory.write(place, {2, 2}, {}, {4, 1, 40}) == nullptr);  // an empty range
  CHECK(memory.read(place, {1, 3}, knowing(1, 1), {5, 1, 50})->index == 20);
  memory.values(place, {1, 2})[0] = {7, 3};
  CHECK(memory.values(place, kAll)[1] == Value{7, 3});
  CHECK(memory.values(other, kAll)[1] == Value{});
}

TEST_CASE("slices are cut where some region of that block begins or ends, on any rank") {
  const topology::Topology topology = test::layout_topology("AB");
  const plan::Spec spec{Collective::AllGather};
  const Problem problem{.spec = spec, .topology = topology};
  Codes codes(2);
  const auto part = [](uint32_t block, plan::Fraction begin, plan::Fraction end) {
    return plan::Region{plan::Buffer::Output, block, begin, end};
  };
  lower::Instruction one;
  one.dst = {lower::Memory::Output, part(1, {1, 3}, {1, 1})};
  codes[0].list = {one};
  one.dst.region = part(0, {0, 1}, {1, 1});
  one.srcs = {{lower::Memory::Output, part(1, {1, 2}, {2, 3})}};
  codes[1].list = {one};
  const Cells cells(problem, codes);
  CHECK(cells.size(0, part(0, {0, 1}, {1, 1})) == 1);
  CHECK(cells.size(0, part(1, {0, 1}, {1, 1})) == 4);  // cut at 1/3, 1/2, 2/3
  // Rank 1's input is block 1.
  CHECK(cells.size(1, {plan::Buffer::Input, 0}) == 4);
  CHECK(cells.size(0, {plan::Buffer::Input, 0}) == 1);
  const Cells::Range range = cells.range(0, part(1, {1, 3}, {2, 3}));
  CHECK(range.begin == 1);
  CHECK(range.end == 3);
  const Cells::Range same = cells.range(0, part(1, {2, 6}, {4, 6}));
  CHECK(same.begin == 1);
  CHECK(same.end == 3);
}

}  // namespace hetccl::verify
