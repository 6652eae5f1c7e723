// Ranks as threads join, exchange and leave while nothing is broken.
#include <doctest/doctest.h>

#include <set>

#include "bootstrap/testing.h"

namespace hetccl::bootstrap {
namespace {

using namespace testing;

// Sizes differ by rank and round, 0 included.
std::vector<uint8_t> part_of(int rank, int round) {
  return std::vector<uint8_t>(static_cast<size_t>((rank * 37 + round * 11) % 300),
                              static_cast<uint8_t>(rank + round));
}

void exchange(int n_ranks, int n_services, int rounds) {
  std::vector<std::unique_ptr<Service>> services;
  std::vector<Service*> raw;
  for (int i = 0; i < n_services; ++i) {
    services.push_back(service());
    raw.push_back(services.back().get());
  }
  const auto id = raw[0]->unique_id();
  REQUIRE(id.ok());
  std::vector<FailureBox> boxes(static_cast<size_t>(n_ranks));
  const Sessions sessions = join_all(raw, id.value(), n_ranks, &boxes);
  REQUIRE(complete(sessions));
  std::vector<int> wrong(static_cast<size_t>(n_ranks));
  parallel(n_ranks, [&](int rank) {
    Session& session = *sessions[static_cast<size_t>(rank)];
    for (int round = 0; round < rounds; ++round) {
      const auto all = session.all_gather(part_of(rank, round), kHangMs);
      bool right = all.ok() && all.value().size() == static_cast<size_t>(n_ranks);
      for (int other = 0; right && other < n_ranks; ++other) {
        right = all.value()[static_cast<size_t>(other)] == part_of(other, round);
      }
      if (!right || !session.barrier(kHangMs).ok()) ++wrong[static_cast<size_t>(rank)];
    }
    session.leave(0);
  });
  CHECK(wrong == std::vector<int>(wrong.size()));
  for (FailureBox& box : boxes) CHECK(box.count() == 0);
}

TEST_CASE("1, 2 and 8 ranks exchange through one service or several") {
  exchange(1, 1, 3);
  exchange(2, 1, 3);
  exchange(2, 2, 3);
  exchange(8, 3, 5);
}

TEST_CASE("64 ranks on 64 services") {
  exchange(64, 64, 3);
}

TEST_CASE("a megabyte from each rank") {
  const auto one = service(), two = service();
  const auto id = one->unique_id();
  const Sessions sessions = join_all({one.get(), two.get()}, id.value(), 4);
  REQUIRE(complete(sessions));
  std::vector<int> right(4);
  parallel(4, [&](int rank) {
    const auto at = static_cast<size_t>(rank);
    const std::vector<uint8_t> mine(size_t{1} << 20, static_cast<uint8_t>(rank));
    const auto all = sessions[at]->all_gather(mine, kHangMs);
    right[at] = all.ok() && all.value()[3] == std::vector<uint8_t>(size_t{1} << 20, 3);
  });
  CHECK(right == std::vector<int>(4, 1));
  CHECK(sessions[0]->all_gather(std::vector<uint8_t>((1 << 20) + 1), 100).status().code() ==
        ErrorCode::InvalidArgument);
}

TEST_CASE("a session knows its communicator, which nobody else has") {
  const auto one = service();
  std::set<uint64_t> seen;
  for (int i = 0; i < 3; ++i) {
    const auto id = one->unique_id();
    const Sessions sessions = join_all({one.get()}, id.value(), 2);
    REQUIRE(complete(sessions));
    CHECK(sessions[0]->communicator() == sessions[1]->communicator());
    CHECK(sessions[0]->secret() == sessions[1]->secret());
    CHECK(sessions[0]->secret().size() == 32);
    CHECK(sessions[1]->rank() == 1);
    CHECK(sessions[1]->n_ranks() == 2);
    seen.insert(sessions[0]->communicator());
  }
  CHECK(seen.size() == 3);
}

TEST_CASE("an idle communicator lives on heartbeats beyond the liveness time") {
  const auto one = service(patient_ms(400)), two = service(patient_ms(1'000));
  const auto id = one->unique_id();
  std::vector<FailureBox> boxes(2);
  const Sessions sessions = join_all({one.get(), two.get()}, id.value(), 2, &boxes);
  REQUIRE(complete(sessions));
  std::this_thread::sleep_for(patient(std::chrono::milliseconds(1'300)));
  CHECK(boxes[0].count() + boxes[1].count() == 0);
  std::vector<int> right(2);
  parallel(2, [&](int r) {
    right[static_cast<size_t>(r)] = sessions[static_cast<size_t>(r)]->barrier(kHangMs).ok();
  });
  CHECK(right == std::vector<int>(2, 1));
}

TEST_CASE("ranks may leave in any order, the coordinator's first") {
  for (const bool coordinator_first : {true, false}) {
    auto one = service(patient_ms(500)), two = service(patient_ms(500));
    const auto id = one->unique_id();
    std::vector<FailureBox> boxes(2);
    Sessions sessions = join_all({one.get(), two.get()}, id.value(), 2, &boxes);
    REQUIRE(complete(sessions));
    const size_t first = coordinator_first ? 0 : 1;
    sessions[first]->leave(0);
    sessions[first]->leave(0);
    CHECK(sessions[first]->barrier(1'000).code() == ErrorCode::InvalidUsage);
    sessions[first].reset();
    (coordinator_first ? one : two).reset();
    std::this_thread::sleep_for(patient(std::chrono::milliseconds(700)));  // longer than liveness
    CHECK(boxes[0].count() + boxes[1].count() == 0);
    const Status alone = sessions[1 - first]->barrier(kHangMs);
    CHECK(alone.code() == ErrorCode::RemoteError);
    CHECK(contains(alone.message(), "left"));
    sessions[1 - first].reset();
  }
}

TEST_CASE("without its coordinator a rank still hears of the failure that it reports itself") {
  auto one = service();
  const auto two = service();
  const auto id = one->unique_id();
  std::vector<FailureBox> boxes(2);
  Sessions sessions = join_all({one.get(), two.get()}, id.value(), 2, &boxes);
  REQUIRE(complete(sessions));
  sessions[0].reset();
  one.reset();
  sessions[1]->report({ErrorCode::RemoteError, 0, "channel closed"});
  const auto failure = boxes[1].wait();
  REQUIRE(failure);
  CHECK(failure->reason == "channel closed");
}

TEST_CASE("a session may outlive its service") {
  auto one = service();
  const auto id = one->unique_id();
  Sessions sessions = join_all({one.get()}, id.value(), 1);
  REQUIRE(complete(sessions));
  one.reset();
  CHECK(sessions[0]->barrier(1'000).code() == ErrorCode::Aborted);
  sessions[0]->leave(0);
}

TEST_CASE("joining a communicator that has ended says so") {
  const auto one = service(), two = service();
  const auto id = one->unique_id();
  Sessions sessions = join_all({one.get(), two.get()}, id.value(), 2);
  REQUIRE(complete(sessions));
  sessions.clear();
  Status late;
  // The coordinator learns of the last leave some time later.
  for (const TimePoint limit = steady_clock().now() + kHang; steady_clock().now() < limit;) {
    late = two->join(id.value(), options(1, 2, 5'000)).status();
    if (late.code() == ErrorCode::InvalidUsage) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  CHECK(late.code() == ErrorCode::InvalidUsage);
  CHECK(contains(late.message(), "has ended"));
}

}  // namespace
}  // namespace hetccl::bootstrap
