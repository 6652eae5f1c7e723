#include "verify/clock.h"

#include <doctest/doctest.h>

#include <map>
#include <random>

namespace hetccl::verify {

TEST_CASE("a clock knows nothing of threads that it has not heard of") {
  Clock clock;
  CHECK(clock.of(0) == 0);
  clock.set(7, 3);
  CHECK(clock.of(7) == 3);
  CHECK(clock.of(6) == 0);
  CHECK(clock.of(8) == 0);
  clock.set(7, 5);
  CHECK(clock.of(7) == 5);
}

TEST_CASE("joining takes the later of what both know") {
  Clock a, b;
  a.set(1, 5);
  a.set(3, 1);
  b.set(2, 7);
  b.set(3, 4);
  b.set(9, 1);
  a.join(b);
  CHECK(a.of(1) == 5);
  CHECK(a.of(2) == 7);
  CHECK(a.of(3) == 4);
  CHECK(a.of(9) == 1);
  CHECK(b.of(1) == 0);  // b has not joined a
  b.set(3, 2);
  a.join(b);
  CHECK(a.of(3) == 4);
  Clock empty;
  a.join(empty);
  CHECK(a.of(2) == 7);
  empty.join(a);
  CHECK(empty.of(2) == 7);
}

TEST_CASE("joining from a thread on leaves those before alone") {
  Clock a, b;
  a.set(5, 9);
  for (const ThreadId thread : {1U, 5U, 6U}) b.set(thread, 4);
  a.join_from(b, 5);
  CHECK(a.of(1) == 0);
  CHECK(a.of(5) == 9);
  CHECK(a.of(6) == 4);
}

TEST_CASE("clocks are the maximum by thread, in any order of calls") {
  std::mt19937_64 random(1);
  for (int round = 0; round < 200; ++round) {
    Clock clocks[2];
    std::map<ThreadId, uint32_t> counts[2];
    for (int i = 0; i < 30; ++i) {
      const size_t which = random() % 2;
      if (random() % 4 == 0) {
        clocks[which].join(clocks[1 - which]);
        for (const auto& [thread, count] : counts[1 - which]) {
          counts[which][thread] = std::max(counts[which][thread], count);
        }
      } else {
        const auto thread = static_cast<ThreadId>(random() % 10);
        const auto count = static_cast<uint32_t>(1 + random() % 100);
        clocks[which].set(thread, count);
        counts[which][thread] = count;
      }
    }
    for (ThreadId thread = 0; thread < 10; ++thread) {
      for (const size_t which : {0, 1}) {
        CHECK(clocks[which].of(thread) == counts[which][thread]);
      }
    }
  }
}

}  // namespace hetccl::verify
