// Tests how calls are cut into slices, and which of their messages go through rings.
#include "lower/geometry.h"

#include <doctest/doctest.h>

#include <random>

#include "lower/ring.h"
#include "lower/testing.h"
#include "plan/schedule.h"

namespace hetccl::lower {
namespace {

using namespace testing;

constexpr uint64_t kFloatGrain = 16;  // 64 bytes

Geometry cut(const RankPlan& plan, uint64_t count, uint64_t slice_bytes, uint32_t depth = 3,
             Reach reach = kDirect) {
  const Job job(plan, reach);
  return geometry_of(plan, job.target,
                     {.type = DataType::Float32, .count = count, .choice = {slice_bytes, depth}});
}

/// `exchange` with fixed slices.
RankPlan fixed_exchange() {
  RankPlan plan = exchange();
  plan.stages = 1;
  for (Step& step : plan.steps) step.stage = 0;
  plan.slicing = plan::Slicing::Fixed;
  return plan;
}

}  // namespace

TEST_CASE("a call is cut into slices of the chosen size, the last as long as what is left") {
  const Geometry geometry = cut(exchange(), 1000, 512);
  CHECK(geometry.slice_elements == 128);
  CHECK(geometry.n_slices == 8);
  CHECK(cut(exchange(), 1024, 512).n_slices == 8);
  CHECK(cut(exchange(), 1025, 512).n_slices == 9);
  // Slices begin at multiples of 64 bytes.
  CHECK(cut(exchange(), 1000, 516).slice_elements == 144);
  CHECK(cut(exchange(), 1000, 0).slice_elements == kFloatGrain);
}

TEST_CASE("no slice is longer than the message, and no call has more than kMaxSlices") {
  for (const uint64_t count : {0, 1, 15, 16, 17, 1000}) {
    const Geometry geometry = cut(exchange(), count, 1 << 20);
    CHECK(geometry.n_slices == 1);
    CHECK(geometry.slice_elements >= std::max<uint64_t>(count, 1));
    CHECK(geometry.slice_elements < std::max<uint64_t>(count, 1) + kFloatGrain);
  }
  std::mt19937_64 random(11);
  for (int i = 0; i < 1000; ++i) {
    const uint64_t count = random() >> random() % 60, slice_bytes = 64 * (1 + random() % 1000);
    CAPTURE(count);
    const Geometry geometry = cut(exchange(), count >> 8, slice_bytes);
    CHECK(geometry.n_slices <= kMaxSlices);
    CHECK(geometry.slice_elements % kFloatGrain == 0);
    CHECK(geometry.slice_elements * geometry.n_slices >= count >> 8);
    CHECK(geometry.slice_elements * (geometry.n_slices - 1) <= count >> 8);
  }
}

TEST_CASE("a plan that is not sliced is one slice, however long") {
  RankPlan plan = exchange();
  plan.slicing = plan::Slicing::None;
  for (const uint64_t count : {1, 17, 1 << 20}) {
    const Geometry geometry = cut(plan, count, 512);
    CHECK(geometry.n_slices == 1);
    CHECK(geometry.slice_elements == count);
  }
  CHECK(cut(plan, 0, 512).slice_elements == 1);
}

TEST_CASE("there are as many slots as slices in flight, at most as many as slices") {
  CHECK(cut(exchange(), 1 << 20, 512, 3).n_slots == 4);
  CHECK(cut(exchange(), 1 << 20, 512, 0).n_slots == 1);
  CHECK(cut(exchange(), 256, 512, 3).n_slots == 2);
}

TEST_CASE("a call of one slice and few bytes is short") {
  constexpr uint64_t kMost = 64 << 10;  // 256 KiB
  CHECK(cut(exchange(), kMost, 1 << 20).short_call);
  CHECK_FALSE(cut(exchange(), kMost + 1, 1 << 20).short_call);
  CHECK_FALSE(cut(exchange(), kMost, 128 << 10).short_call);  // two slices
  RankPlan busy = exchange();                                 // moves more bytes than its slice has
  for (int i = 0; i < 3; ++i) busy.steps.push_back(message(StepKind::Send, 3, {}, 5, {}));
  CHECK_FALSE(cut(busy, kMost, 1 << 20).short_call);
  CHECK(cut(busy, kMost / 4, 1 << 20).short_call);
  // A single step has nothing to overlap.
  RankPlan one;
  one.steps = {step(StepKind::CclBarrier, 0, {})};
  CHECK(cut(one, 64 * kMost, 1 << 30).short_call);
  CHECK_FALSE(cut(one, 64 * kMost, 1 << 20).short_call);
}

TEST_CASE("messages go through a ring that holds twice a slice's, all of a direction or none") {
  RankPlan plan = exchange();
  plan.steps[2].peer = 5;
  const auto routes = [&](size_t ring_bytes) {
    return cut(plan, kEightSlices, 4096, 3, {.ring_bytes = ring_bytes}).lanes.at(0);
  };
  // A piece may be a grain longer than in the first slice.
  const size_t room = Ring::room(4096 + 64);
  CHECK(routes(0) == Geometry::RingUse{});
  CHECK(routes(2 * room - Ring::kGrain) == Geometry::RingUse{});
  CHECK(routes(2 * room) == Geometry::RingUse{true, true, 0});
  CHECK(routes(3 * room) == Geometry::RingUse{true, true, 1});
  CHECK(routes(100 * room) == Geometry::RingUse{true, true, 3});  // the pipeline's depth
  plan.steps.push_back(message(StepKind::Send, 3, {}, 5, {}));    // too much in one direction
  CHECK(routes(2 * room) == Geometry::RingUse{false, true, 0});
  CHECK(routes(4 * room) == Geometry::RingUse{true, true, 2});
  // A single slice has its exact length.
  const Geometry one = cut(exchange(), kOneSlice, 4096, 3, {.ring_bytes = 2 * 4096});
  for (const Geometry::RingUse& use : one.lanes) CHECK(use == Geometry::RingUse{true, true, 0});
}

// A piece of a shorter slice may be longer: the second half of 1023 floats has 527, that of 1024
// has 512.
TEST_CASE("a message of several blocks takes as many times the room") {
  RankPlan plan;
  plan.scratch_blocks = 3;
  const Region run{.buffer = Buffer::Scratch, .blocks = 3};
  plan.steps = {message(StepKind::Send, 0, {}, 1, run)};
  const auto in_ring = [&](size_t ring) {
    return cut(plan, 4096, 4096, 3, {.ring_bytes = ring}).lanes[0].send_in_ring;
  };
  CHECK(in_ring(2 * (3 * 4096 + Ring::kGrain)));
  CHECK_FALSE(in_ring(2 * (3 * 4096 + Ring::kGrain) - 1));
}

TEST_CASE("what goes through a window fits, and is read in time, in every slice") {
  std::mt19937_64 random(7);
  size_t kept = 0, longer = 0;
  for (int i = 0; i < 2000; ++i) {
    const auto den = static_cast<uint32_t>(1 + random() % 6);
    const auto begin = static_cast<uint32_t>(random() % den);
    const auto end = static_cast<uint32_t>(begin + 1 + random() % (den - begin));
    RankPlan plan;
    plan.scratch_blocks = 1;
    plan.steps = {
        message(StepKind::Recv, 0, {}, 1, {Buffer::Scratch, 0, {begin, den}, {end, den}})};
    const uint64_t slice = kFloatGrain * (1 + random() % 100);
    const uint64_t last = random() % slice, count = slice * (1 + random() % 4) + last;
    const size_t ring = Ring::kGrain * (2 + random() % 40);
    const Geometry geometry = cut(plan, count, 4 * slice, 3, {.ring_bytes = ring});
    REQUIRE(geometry.slice_elements == slice);
    if (!geometry.lanes[0].recv_in_ring) continue;
    const size_t unread = geometry.lanes[0].unread;
    kept += unread > 0 ? 1 : 0;
    const auto bytes_in = [&](uint32_t k) {
      const uint64_t length = std::min(slice, count - k * slice);
      return 4 * (plan::element({end, den}, length, kFloatGrain) -
                  plan::element({begin, den}, length, kFloatGrain));
    };
    for (uint32_t k = 0; k < geometry.n_slices; ++k) {
      longer += bytes_in(k) > bytes_in(0) ? 1 : 0;
      CHECK((2 + unread) * Ring::room(bytes_in(k)) <= ring);
    }
  }
  CHECK(kept > 100);
  CHECK(longer > 0);
}

TEST_CASE("both ends of a lane route its messages alike") {
  std::mt19937_64 random(8);
  size_t rings = 0;
  for (int i = 0; i < 500; ++i) {
    RankPlan here, there;
    here.scratch_blocks = there.scratch_blocks = 3;
    for (auto n = static_cast<uint32_t>(1 + random() % 3); n > 0; --n) {
      const bool sends = random() % 2 == 0;
      Region part = scratch(n - 1);
      part.end = {static_cast<uint32_t>(1 + random() % 4), 4};
      const auto to = sends ? StepKind::Send : StepKind::Recv;
      const auto from = sends ? StepKind::Recv : StepKind::Send;
      here.steps.push_back(message(to, 0, {}, 1, part));
      there.steps.push_back(message(from, 0, {}, 0, part));
    }
    const Reach reach{.ring_bytes = Ring::kGrain * (2 + random() % 60)};
    const uint64_t count = random() % 20'000, slice_bytes = 64 * (1 + random() % 100);
    const Geometry a = cut(here, count, slice_bytes, 3, reach),
                   b = cut(there, count, slice_bytes, 3, reach);
    CHECK(a.lanes[0].send_in_ring == b.lanes[0].recv_in_ring);
    CHECK(a.lanes[0].recv_in_ring == b.lanes[0].send_in_ring);
    CHECK(a.short_call == b.short_call);
    rings += a.lanes[0].send_in_ring && a.n_slices > 1 ? 1 : 0;
  }
  CHECK(rings > 20);
}

TEST_CASE("an uneven call is cut by its longest block, its messages by their own") {
  RankPlan plan;
  plan.output_blocks = 2;
  plan.steps = {message(StepKind::Recv, 0, {}, 1, {Buffer::Output, 0}),
                message(StepKind::Recv, 0, {}, 2, {Buffer::Output, 1})};
  const Job job(plan, {.ring_bytes = 8 * Ring::kGrain});
  const uint64_t counts[] = {100, 4096}, offsets[] = {0, 100};
  const Geometry geometry = geometry_of(
      plan, job.target,
      {.type = DataType::Float32, .count = 4096, .output = {counts, offsets}, .choice = {4096, 3}});
  CHECK(geometry.n_slices == 4);
  CHECK(geometry.lanes[0].recv_in_ring);
  CHECK_FALSE(geometry.lanes[1].recv_in_ring);
}

TEST_CASE("the same Code serves calls that differ in length alone") {
  constexpr uint64_t kMany = 4 * kEightSlices;
  const Geometry base = cut(exchange(), kMany, 4096, 3, kShared);
  CHECK(base.same_code(cut(exchange(), kMany + 77, 4096, 3, kShared)));
  CHECK(base.same_code(cut(exchange(), kEightSlices, 2048, 3, kShared)));
  CHECK_FALSE(base.same_code(cut(exchange(), kMany, 4096, 2, kShared)));          // depth, slots
  CHECK_FALSE(base.same_code(cut(exchange(), 2 * kOneSlice, 4096, 3, kShared)));  // slots
  CHECK_FALSE(base.same_code(cut(exchange(), kMany, kRing, 3, kShared)));         // routes
  CHECK_FALSE(base.same_code(cut(exchange(), kOneSlice, 4096, 3, kShared)));
  // A single slice, short or not.
  RankPlan whole = exchange();
  whole.slicing = plan::Slicing::None;
  CHECK_FALSE(cut(whole, kOneSlice, 4096).same_code(cut(whole, 1 << 20, 4096)));
}

TEST_CASE(
    "fixed slices are as long on ranks that know other blocks, and staging memory is bounded") {
  RankPlan plan = fixed_exchange();
  for (const uint32_t most : {1U, 126U, 2046U}) {
    plan.most_messages = most;
    uint64_t slice = 0;
    for (const uint64_t count : {uint64_t{1} << 19, uint64_t{1} << 24, uint64_t{1} << 40}) {
      const Geometry geometry = cut(plan, count, kFixedSlice);
      if (slice == 0) slice = geometry.slice_elements;
      CHECK(geometry.slice_elements == slice);
      CHECK(geometry.n_slots == std::min(4U, geometry.n_slices));
      const uint64_t staging = slice * sizeof(float) * geometry.n_slots * most;
      CHECK(staging <= kMostStagingBytes + most * geometry.n_slots * 64);
    }
  }
  // A fixed slice is cut to a shorter call's length.
  CHECK(cut(plan, 100, kFixedSlice).slice_elements == 112);
}

TEST_CASE(
    "of uneven calls all messages whose slices fit go through rings, whatever their lengths") {
  RankPlan plan = fixed_exchange();
  plan.most_messages = 2;
  const Job job(plan, kShared);
  const auto cut_uneven = [&](uint64_t count, uint64_t slice_bytes) {
    const std::vector<uint64_t> counts(8, count), offsets(8, 0);
    return geometry_of(plan, job.target,
                       {.type = DataType::Float32,
                        .count = count,
                        .input = {counts, offsets},
                        .output = {counts, offsets},
                        .choice = {slice_bytes, 3}});
  };
  for (const uint64_t count : {0, 10, 1 << 20}) {
    CHECK_FALSE(cut_uneven(count, kRing).lanes[1].send_in_ring);
    CHECK(cut_uneven(count, kRing / 2).lanes[1].send_in_ring);
    CHECK(cut_uneven(count, kRing / 2).lanes[0].recv_in_ring);
  }
}

TEST_CASE("peers are named once each, ascending") {
  RankPlan plan = exchange();
  plan.steps.push_back(message(StepKind::Recv, 3, {}, 5, scratch(1)));
  plan.steps.push_back(message(StepKind::Send, 3, {}, 0, scratch(1)));
  CHECK(peers_of(plan) == std::vector<int>{0, 3, 5});
}

}  // namespace hetccl::lower
