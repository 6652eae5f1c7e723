#include "base/memory.h"

#include <doctest/doctest.h>

#include <cstdint>

namespace hetccl {

TEST_CASE("a limit of memory is bytes, and nonsense is no limit") {
  CHECK(memory_of_limit("4294967296\n") == size_t{4} << 30U);
  CHECK(memory_of_limit("1") == 1);
  for (const char* text : {"", "max\n", "0", "-5", "x", "99999999999999999999999"})
    CHECK(memory_of_limit(text) == SIZE_MAX);
  CHECK(usable_memory() > size_t{64} << 20U);
  CHECK(usable_memory() < SIZE_MAX);
}

}  // namespace hetccl
