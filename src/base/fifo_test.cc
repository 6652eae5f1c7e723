#include "base/fifo.h"

#include <doctest/doctest.h>

namespace hetccl {
namespace {

TEST_CASE("a fifo keeps its order while it grows and wraps") {
  Fifo<int> fifo;
  int pushed = 0, popped = 0;
  for (int round = 0; round < 40; ++round) {
    for (int i = 0; i < round; ++i) fifo.push(pushed++);
    CHECK((fifo.empty() || fifo[fifo.size() - 1] == pushed - 1));
    for (int i = 0; i < round / 2 && !fifo.empty(); ++i) {
      CHECK(fifo.front() == popped++);
      fifo.pop();
    }
  }
  CHECK(fifo.size() == static_cast<size_t>(pushed - popped));
}

}  // namespace
}  // namespace hetccl
