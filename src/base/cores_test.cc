#include "base/cores.h"

#include <doctest/doctest.h>
#include <sched.h>

namespace hetccl {

TEST_CASE("a quota is whole cores, and nonsense is no quota") {
  CHECK(cores_of_quota("400000 100000") == 4);
  CHECK(cores_of_quota("400001 100000\n") == 5);
  CHECK(cores_of_quota("50000 100000") == 1);
  CHECK(cores_of_quota("9223372036854775807 1") == 1 << 20);
  for (const char* text : {"", "max 100000", "400000", "400000 ", "0 100000", "-5 100000",
                           "100000 0", "x y", "99999999999999999999 1"})
    CHECK(cores_of_quota(text) == 0);
}

TEST_CASE("a process that is bound to a core has one") {
  CHECK(usable_cores() >= 1);
  cpu_set_t all, one;
  REQUIRE(sched_getaffinity(0, sizeof all, &all) == 0);
  CHECK(!list_of_cores().empty());
  CHECK(part_of_cores(1, 1) <= usable_cores());
  CHECK(part_of_cores(2, 1) <= part_of_cores(1, 1));
  CHECK(part_of_cores(1 << 20, 1 << 20) == 0);
  int first = 0;
  while (!CPU_ISSET(first, &all)) ++first;
  CPU_ZERO(&one);
  CPU_SET(first, &one);
  REQUIRE(sched_setaffinity(0, sizeof one, &one) == 0);
  CHECK(usable_cores() == 1);
  CHECK(part_of_cores(1, 1) == 0);
  CHECK(list_of_cores() == std::to_string(first));
  CHECK(sched_setaffinity(0, sizeof all, &all) == 0);
}

}  // namespace hetccl
