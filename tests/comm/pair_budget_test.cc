#include "comm/pair_budget.h"

#include <doctest/doctest.h>

#include <vector>

namespace hetccl::comm {

TEST_CASE("the first pairs have many blocks, the last a few, and all of them room on the device") {
  for (const int multiprocessors : {0, 58, 108, 132, 1000}) {
    CAPTURE(multiprocessors);
    PairBudget pairs;
    std::vector<PairBudget::Share> shares;
    int all = 0;
    for (int i = 0; i < PairBudget::kMostPairs; ++i) {
      shares.push_back(pairs.take(multiprocessors));
      CHECK(shares.back().blocks() >= 4);
      CHECK(shares.back().blocks() <= 16);
      CHECK((i == 0 || shares.back().blocks() <= shares[shares.size() - 2].blocks()));
      all += 2 * shares.back().blocks();
    }
    CHECK(all <= std::max(64, std::min(multiprocessors, 128)));
    if (multiprocessors >= 108) CHECK(shares.front().blocks() == 16);
    CHECK(pairs.take(multiprocessors).blocks() == 0);
    shares.erase(shares.begin());
    CHECK(pairs.take(multiprocessors).blocks() > 0);
  }
}

TEST_CASE("what a pair does not take is another's") {
  PairBudget pairs;
  auto first = pairs.take(132), second = pairs.take(132), third = pairs.take(132);
  CHECK(third.blocks() < 16);
  third = {};
  first.keep(4);
  first.keep(8);
  CHECK(first.blocks() == 4);
  CHECK(pairs.take(132).blocks() == 16);
}

}  // namespace hetccl::comm
