// Jobs whose ranks are hosts of their own and meet by RDMA. In a machine that has two ports with
// RDMA: tests/rdma/run makes one. Elsewhere nothing here runs.
#include <doctest/doctest.h>

#include <cstdlib>
#include <vector>

#include "comm/over_hosts.h"
#include "comm/ranks.h"
#include "rdma/rails.h"

namespace hetccl {
namespace {

using comm::Ranks;
using fake::Case;

bool skipped() {
  return std::getenv("HETCCL_TEST_RDMA") == nullptr;
}

std::vector<Config> hosts(size_t n) {
  std::vector<Config> configs(n);
  for (size_t i = 0; i < n; ++i) {
    configs[i].host_id = format("host%zu", i);
    configs[i].transport = "verbs";
    configs[i].slice_bytes = 64 << 10;
    configs[i].rdma_queue_pairs = static_cast<int64_t>(1 + i % 4);
  }
  return configs;
}

}  // namespace

TEST_CASE("collectives over 2 and 4 hosts have the right values" * doctest::skip(skipped())) {
  comm::check_values_over_hosts(hosts);
}

TEST_CASE("clusters of two ranks meet over RDMA, too" * doctest::skip(skipped())) {
  std::vector<Config> configs = hosts(4);
  configs[1].host_id = configs[0].host_id;
  configs[3].host_id = configs[2].host_id;
  const std::vector<std::string> labels = {"A", "A", "B", "B"};
  Ranks ranks(labels, configs);
  std::mt19937_64 random(5);
  for (int i = 0; i < 30; ++i) {
    const Case test = fake::random_case(random, labels, 3000);
    INFO(test.text());
    REQUIRE(comm::run(ranks, test, i % 2 == 0) == "");
  }
}

// Ranks 0 and 2 meet on the first rail, 1 and 3 on the second.
TEST_CASE("both rails between two hosts carry their half" * doctest::skip(skipped())) {
  constexpr uint64_t kCount = 1 << 20, kMtu = 1024;
  std::vector<Config> configs = hosts(4);
  configs[1].host_id = configs[0].host_id;
  configs[3].host_id = configs[2].host_id;
  Ranks ranks({"A", "A", "B", "B"}, configs);
  const uint64_t before[] = {rdma_rails::packets_of(0), rdma_rails::packets_of(1)};
  CHECK(comm::run(ranks, comm::all_reduce(ranks, kCount), false) == "");
  uint64_t crossed = 0;
  for (int rank = 0; rank < ranks.n(); ++rank)
    crossed += ranks[rank]->dispatch().statistics().cross_bytes_sent;
  CHECK(crossed >= 2 * kCount * sizeof(float));
  for (const int rail : {0, 1}) {
    const uint64_t packets = rdma_rails::packets_of(rail) - before[rail];
    MESSAGE("rail " << rail << " has sent " << packets << " packets of " << crossed << " bytes");
    CHECK(packets * kMtu >= crossed / 2);
  }
}

}  // namespace hetccl
