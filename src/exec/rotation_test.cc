// The buffers that an operation gets, what it waits for, and when buffers are freed.
#include "exec/rotation.h"

#include <doctest/doctest.h>

#include "exec/testing.h"

namespace {

using hetccl::ErrorCode;
using hetccl::exec::Rotation;
using hetccl::exec::testing::QueueDevice;

struct RotationFixture {
  QueueDevice device;
  std::unique_ptr<Rotation> rotation = std::move(Rotation::create(device)).value();
  Rotation::Turn take(uint64_t number, uint64_t retired, size_t bytes = 1000) {
    auto turn = rotation->take(number, retired, bytes, bytes);
    REQUIRE(turn.ok());
    return turn.value();
  }
};

}  // namespace

TEST_CASE("one operation at a time takes one operation's memory, more take two's") {
  RotationFixture f;
  const auto first = f.take(0, 0);
  CHECK(first.before == 0);
  Rotation::leave(first);
  CHECK(f.take(1, 1).buffers == first.buffers);
  const size_t of_one = f.device.blocks;
  const auto second = f.take(2, 1);
  CHECK(second.buffers != first.buffers);
  const size_t of_two = f.device.blocks;
  CHECK(of_two == of_one + 2);
  for (uint64_t number = 3; number < 100; ++number) {
    const auto turn = f.take(number, 1);  // nothing is retired, so buffers take turns
    CHECK(turn.buffers == (number % 2 == 0 ? second : first).buffers);
  }
  CHECK(f.device.blocks == of_two);
  f.rotation.reset();
  CHECK(f.device.blocks == 0);
}

TEST_CASE("the device waits for all operations that had the buffers before") {
  RotationFixture f;
  const auto first = f.take(0, 0), other = f.take(1, 0), next = f.take(2, 0), last = f.take(3, 0);
  CHECK(next.left == first.left);
  CHECK(last.left == other.left);
  CHECK(first.left->reached(first.before));
  CHECK_FALSE(next.left->reached(next.before));
  Rotation::leave(first);
  CHECK(next.left->reached(next.before));
  CHECK_FALSE(last.left->reached(last.before));
  // Repeated calls never undo a release.
  for (int times = 1; times <= 4; ++times) {
    CAPTURE(times);
    f.rotation->release_waits();
    CHECK(last.left->reached(last.before));
    CHECK(next.left->reached(next.before + 1000));
  }
}

TEST_CASE("buffers that became too small live as long as an operation uses them") {
  RotationFixture f;
  const auto small = f.take(0, 0, 1000);
  f.take(1, 0, 1000);
  const size_t blocks = f.device.blocks;
  const auto large = f.take(2, 0, 1500);
  CHECK(large.buffers != small.buffers);
  CHECK(large.buffers->scratch.bytes() == 2000);
  std::memset(small.buffers->scratch.data(), 1, 1000);  // sanitizers check
  CHECK(f.device.blocks == blocks + 2);
  f.take(3, 1, 1000);
  CHECK(f.device.blocks == blocks);
  // Nothing uses it, so it grows in place.
  const auto larger = f.take(4, 4, 5000);
  CHECK(f.device.blocks == blocks);
  CHECK(larger.buffers->staging.bytes() >= 5000);
}

TEST_CASE("without memory the buffers stay as they were") {
  RotationFixture f;
  const auto first = f.take(0, 0), second = f.take(1, 0);
  f.device.largest_block = 4000;
  CHECK(f.rotation->take(2, 0, 5000, 0).status().code() == ErrorCode::SystemError);
  CHECK(f.rotation->take(2, 2, 5000, 0).status().code() == ErrorCode::SystemError);
  const auto next = f.take(2, 0);
  CHECK(next.buffers == first.buffers);
  CHECK(next.before == 1);
  CHECK(f.take(3, 0).buffers == second.buffers);
}
