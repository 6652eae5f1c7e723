// Ranks that call different collectives: every rank gets the same error, which names both calls and
// ranks.
#include <doctest/doctest.h>

#include <barrier>

#include "comm/ranks.h"

namespace {

using namespace hetccl;
using namespace hetccl::comm;

Config quick() {
  Config config;
  config.liveness_ms = fake::kHangMs;
  return config;
}

}  // namespace

TEST_CASE("ranks that call different collectives are named, with the calls, in the same words") {
  const std::vector<std::vector<std::string>> layouts = {
      {"A", "A", "A", "A"}, {"A", "A", "A", "B"}, {"A", "A", "B", "B"}};
  for (const auto& labels : layouts) {
    for (const bool large : {false, true}) {  // at once, and through the engine
      CAPTURE(labels[1] + labels[2] + labels[3]);
      CAPTURE(large);
      const size_t count = large ? 300'000 : 10;
      Ranks ranks(labels, quick(), false);
      std::vector<Status> statuses(4);
      std::barrier all_done(4);
      on_all_ranks(ranks, [&](int rank) {
        std::vector<float> data(count, 1), more(count + 1, 1);
        CHECK(sum(*ranks[rank], data).ok());
        all_done.arrive_and_wait();
        statuses[static_cast<size_t>(rank)] = sum(*ranks[rank], rank == 3 ? more : data);
      });
      const auto called = [&](size_t n) { return format("all_reduce #1 (%zu float32, sum)", n); };
      for (const Status& status : statuses) {
        CAPTURE(status.message());
        CHECK(status.code() == ErrorCode::InvalidUsage);
        CHECK(status.message() == statuses[0].message());
        CHECK(status.message().starts_with("rank 3 called " + called(count + 1) + " where rank"));
        CHECK(status.message().ends_with(" called " + called(count) +
                                         "; all ranks must make the same calls in the same order"));
        // Other clusters' ranks may notice before each of these has called.
        const bool sees_all = labels.back() == "A";
        if (sees_all) CHECK(status.message().find("where ranks 0, 1, 2 ") != std::string::npos);
      }
    }
  }
}

TEST_CASE("a rank that skips a call, or gives another root, is named within its cluster") {
  Ranks ranks({"A", "A", "A"}, quick(), false);
  std::vector<Status> statuses(3);
  const auto broadcast = [&](int rank, int root, std::vector<float>& data) {
    CollectiveArguments arguments;
    arguments.signature = {Collective::Broadcast, DataType::Float32, RedOp::Sum, root, data.size()};
    arguments.send = arguments.recv = data.data();
    return ranks[rank]->dispatch().call(arguments, nullptr);
  };
  on_all_ranks(ranks, [&](int rank) {
    std::vector<float> data(100, 1);
    statuses[static_cast<size_t>(rank)] = broadcast(rank, rank == 1 ? 2 : 0, data);
  });
  for (const Status& status : statuses) {
    CHECK(status.message().starts_with(
        "rank 1 called broadcast #0 (100 float32, root 2) where ranks 0, 2 called broadcast #0 "
        "(100 float32, root 0);"));
  }
  ranks.join();
  on_all_ranks(ranks, [&](int rank) {
    std::vector<float> data(100, 1);
    if (rank != 2) CHECK(ranks[rank]->dispatch().start({{Collective::Barrier}}, {}).ok());
    statuses[static_cast<size_t>(rank)] = sum(*ranks[rank], data);
  });
  for (const Status& status : statuses) {
    CHECK(status.message().starts_with(
        "rank 2 called all_reduce #0 (100 float32, sum) where ranks 0, 1 called barrier #0;"));
  }
}

TEST_CASE("ranks whose blocks differ in length are named") {
  Ranks ranks({"A", "A"}, quick(), false);
  std::vector<Status> statuses(2);
  on_all_ranks(ranks, [&](int rank) {
    std::vector<float> sent(10), received(10);
    const std::vector<uint64_t> mine =
        rank == 0 ? std::vector<uint64_t>{4, 6} : std::vector<uint64_t>{3, 7};
    const std::vector<uint64_t> places = {0, mine[0]};
    CollectiveArguments arguments;
    arguments.signature = {Collective::AllGather, DataType::Float32, RedOp::Sum, 0, 10, true};
    arguments.send = sent.data();
    arguments.recv = received.data();
    const std::vector<uint64_t> own = {mine[static_cast<size_t>(rank)]}, at_start = {0};
    arguments.input = {own, at_start};
    arguments.output = {mine, places};
    statuses[static_cast<size_t>(rank)] = ranks[rank]->dispatch().call(arguments, nullptr);
  });
  for (const Status& status : statuses) {
    CAPTURE(status.message());
    CHECK(status.message().find("the ranks disagree on all_gather_v #0 (10 float32): rank ") == 0);
    CHECK(status.message().find("passed different counts or roots") != std::string::npos);
    CHECK(status.message() == statuses[0].message());
  }
}
