// Collectives of ranks that are hosts of their own.
#pragma once

#include <doctest/doctest.h>

#include <random>
#include <string>
#include <vector>

#include "comm/ranks.h"

namespace hetccl::comm {

/// Checks random calls and some lengths over 2 and 4 hosts, whose settings `hosts(n)` returns.
template <typename Hosts>
void check_values_over_hosts(const Hosts& hosts) {
  for (const size_t n : {2UL, 4UL}) {
    CAPTURE(n);
    std::vector<std::string> labels;
    for (size_t i = 0; i < n; ++i) labels.push_back(format("%zu", i));
    Ranks ranks(labels, hosts(n));
    std::mt19937_64 random(n);
    for (int i = 0; i < 60; ++i) {
      const fake::Case test = fake::random_case(random, labels, i % 10 == 0 ? 100'000 : 4000);
      INFO(test.text());
      REQUIRE(run(ranks, test, i % 2 == 0) == "");
    }
    for (const uint64_t count : {1UL, 1024UL, 300'001UL})
      CHECK(run(ranks, all_reduce(ranks, count), false) == "");
  }
}

}  // namespace hetccl::comm
