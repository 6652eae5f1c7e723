// Communicators that one thread makes for several ranks, and of some ranks of another.
#include <doctest/doctest.h>

#include <atomic>
#include <memory>
#include <utility>
#include <vector>

#include "comm/ranks.h"

namespace hetccl::comm {
namespace {

std::vector<std::shared_ptr<Communicator>> make_all(std::vector<Making> makings) {
  for (Making& one : makings) REQUIRE(one.start().ok());
  std::vector<std::shared_ptr<Communicator>> made;
  for (Making& one : makings) {
    const Status status = one.wait();
    CAPTURE(status.message());
    REQUIRE(status.ok());
    if (one.communicator() != nullptr) made.push_back(one.communicator());
  }
  return made;
}

bool sums(const std::vector<std::shared_ptr<Communicator>>& ranks) {
  std::atomic<int> wrong{0};
  on_all_ranks(static_cast<int>(ranks.size()), [&](int rank) {
    std::vector<float> data(1000, 1);
    const Status status = sum(*ranks[static_cast<size_t>(rank)], data);
    if (!status.ok() || data[999] != static_cast<float>(ranks.size())) ++wrong;
  });
  return wrong == 0;
}

TEST_CASE("one thread shrinks and splits for all ranks, whether they share a runtime or not") {
  for (const bool share : {true, false}) {
    CAPTURE(share);
    Ranks ranks({"A", "B", "A", "B"}, Config{}, share);
    std::vector<Making> shrinks, splits;
    for (int rank = 0; rank < 4; ++rank) {
      splits.push_back(std::move(ranks[rank]->prepare_split(rank % 2, 0, nullptr)).value());
      if (rank == 1) continue;
      const int excluded[] = {1};
      shrinks.push_back(std::move(ranks[rank]->prepare_shrink(excluded, nullptr)).value());
    }
    for (Making& one : splits) REQUIRE(one.start().ok());
    const auto three = make_all(std::move(shrinks));
    for (Making& one : splits) CHECK(one.wait().ok());
    CHECK(sums(three));
    CHECK(sums({splits[0].communicator(), splits[2].communicator()}));
    CHECK(sums({splits[1].communicator(), splits[3].communicator()}));
    CHECK(sums({ranks[0], ranks[1], ranks[2], ranks[3]}));
  }
}

TEST_CASE("a communicator that is given up tells why, and none is made") {
  Ranks ranks({"A"}, Config{}, true);
  const Making making = std::move(ranks[0]->prepare_split(0, 0, nullptr)).value();
  CHECK(making.communicator()->in_progress());
  making.give_up(error(ErrorCode::InvalidUsage, "there was no need"));
  CHECK(!making.communicator()->in_progress());
  CHECK(making.communicator()->dispatch().failure().message() == "there was no need");
  CHECK(sums({ranks[0]}));
}

TEST_CASE("no device means the host, in a process that uses no GPU") {
  Ranks ranks({"A"}, Config{}, true);
  CHECK(ranks.runtime(0).resolve_device("") == ranks.runtime(0).host_name());
  CHECK(ranks.runtime(0).gpu_number("cuda:3") == 3);
  CHECK(ranks.runtime(0).gpu_number(ranks.runtime(0).host_name()) == -1);
  CHECK(ranks[0]->gpu() == -1);
}

}  // namespace
}  // namespace hetccl::comm
