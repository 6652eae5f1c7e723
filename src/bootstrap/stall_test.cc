// Collectives that do not complete, and ranks that leave: what the others are told.
#include <doctest/doctest.h>

#include <map>

#include "bootstrap/testing.h"
#include "fake/thread.h"

namespace hetccl::bootstrap {
namespace {

using namespace testing;
using std::chrono::milliseconds;

// A rank that reports its position.
struct RankReport {
  Position position;
  milliseconds delay{};
  FailureBox box;
  std::mutex mutex;
  std::map<int, uint64_t> left;  // other ranks, with their calls
};

JoinOptions options_of(int rank, int n_ranks, RankReport& report) {
  JoinOptions made = options(rank, n_ranks, kHangMs, &report.box);
  made.position = [&report](uint64_t) {
    std::this_thread::sleep_for(report.delay);
    return report.position;
  };
  made.on_left = [&report](int who, uint64_t called) {
    std::lock_guard lock(report.mutex);
    report.left[who] = called;
  };
  return made;
}

// Ranks on their own Services; rank 0's has the coordinator.
struct Ranks {
  Ranks(int n, int64_t liveness_ms)
      : reports(static_cast<size_t>(n)), sessions(static_cast<size_t>(n)) {
    for (int rank = 0; rank < n; ++rank) services.push_back(service(liveness_ms));
    const auto id = services[0]->unique_id();
    REQUIRE(id.ok());
    parallel(n, [&](int rank) {
      const auto r = static_cast<size_t>(rank);
      auto joined = services[r]->join(id.value(), options_of(rank, n, reports[r]));
      if (joined.ok()) sessions[r] = std::move(joined).value();
    });
    REQUIRE(complete(sessions));
  }
  ~Ranks() { sessions.clear(); }

  bool knows(size_t rank, int who, uint64_t called) {
    for (const TimePoint limit = steady_clock().now() + kHang; steady_clock().now() < limit;) {
      {
        std::lock_guard lock(reports[rank].mutex);
        const auto found = reports[rank].left.find(who);
        if (found != reports[rank].left.end()) return found->second == called;
      }
      std::this_thread::sleep_for(milliseconds(10));
    }
    return false;
  }

  std::vector<std::unique_ptr<Service>> services;
  std::vector<RankReport> reports;
  Sessions sessions;
};

Stall stall() {
  return {{ErrorCode::Timeout, -1, "barrier #4 timed out"}, 4, "barrier #4", "rank 1: it waits"};
}

TEST_CASE("every rank learns for whom a collective waits, in the same words") {
  Ranks ranks(4, kLivenessMs);
  for (auto& report : ranks.reports) report.position = {5, 4, "barrier #4"};
  ranks.reports[2].position = {3, 3, ""};
  ranks.sessions[3]->leave(2);
  ranks.sessions[1]->report_stall(stall());
  ranks.sessions[0]->report_stall(stall());  // a second report gets the same answer
  for (size_t rank = 0; rank < 3; ++rank) {
    const auto failure = ranks.reports[rank].box.wait();
    REQUIRE(failure);
    CHECK(failure->code == ErrorCode::Timeout);
    CHECK(failure->rank == 3);
    CHECK(failure->reason ==
          "barrier #4 timed out: rank 3 has left the communicator without calling it (rank 3 is at "
          "#1); rank 2 has not called it (rank 2 is at #2)");
    CHECK(ranks.reports[rank].box.count() == 1);
  }
}

TEST_CASE("a rank that does not answer holds the others up for half the liveness time") {
  Ranks ranks(3, patient_ms(3'000));
  for (auto& report : ranks.reports) report.position = {5, 4, "barrier #4"};
  ranks.reports[2].delay = patient(milliseconds(2'900));
  const auto begin = steady_clock().now();
  ranks.sessions[1]->report_stall(stall());
  const auto failure = ranks.reports[0].box.wait();
  const auto took = std::chrono::duration_cast<milliseconds>(steady_clock().now() - begin);
  REQUIRE(failure);
  CHECK(failure->reason == "barrier #4 timed out: rank 2 does not answer");
  CHECK(failure->rank == 2);
  CHECK(took >= patient(milliseconds(1'490)));
}

TEST_CASE("a rank that is lost meanwhile is the cause") {
  Ranks ranks(3, kLivenessMs);
  for (auto& report : ranks.reports) report.position = {5, 4, "barrier #4"};
  ranks.reports[2].delay = milliseconds(300);
  ranks.sessions[1]->report_stall(stall());
  ranks.sessions[0]->report({ErrorCode::RemoteError, 2, "channel closed"});
  const auto failure = ranks.reports[1].box.wait();
  REQUIRE(failure);
  CHECK(failure->reason == "channel closed");
}

TEST_CASE("who leaves is known to the others, with its calls, the coordinator's rank too") {
  Ranks ranks(4, kLivenessMs);
  ranks.sessions[2]->leave(17);
  CHECK(ranks.knows(0, 2, 17));
  CHECK(ranks.knows(3, 2, 17));
  ranks.sessions[0]->leave(18);
  CHECK(ranks.knows(1, 0, 18));
  ranks.services[0].reset();
  for (const auto& report : ranks.reports) CHECK(const_cast<RankReport&>(report).box.count() == 0);
  // Nothing arbitrates any more: each rank reports what it knows.
  for (const size_t rank : {size_t{1}, size_t{3}}) {
    ranks.sessions[rank]->report_stall(stall());
    const auto failure = ranks.reports[rank].box.wait();
    REQUIRE(failure);
    CHECK(failure->reason == "barrier #4 timed out: rank 1: it waits");
  }
}

TEST_CASE("waits end when they are cancelled, and the others learn why") {
  const auto one = service(), two = service();
  const auto id = one->unique_id();
  const auto cancel = Cancel::create().value();
  FailureBox box;
  JoinOptions mine = options(0, 3);
  mine.cancel = cancel.get();
  Status joined, other;
  fake::Thread first([&] { joined = one->join(id.value(), mine).status(); });
  fake::Thread second([&] { other = two->join(id.value(), options(1, 3)).status(); });
  std::this_thread::sleep_for(patient(milliseconds(200)));  // both have come by now
  const auto begin = steady_clock().now();
  cancel->set(error(ErrorCode::Aborted, "enough"));
  first.join();
  second.join();
  CHECK(steady_clock().now() - begin < kHang / 2);
  CHECK(joined.code() == ErrorCode::Aborted);
  CHECK(contains(joined.message(), "enough"));
  CHECK(contains(other.message(), "rank 0 (host t, pid 1000) was lost: it gave up"));
}

TEST_CASE("an exchange that is cancelled still lets its rank report") {
  const auto one = service();
  const auto id = one->unique_id();
  const auto cancel = Cancel::create().value();
  std::vector<FailureBox> boxes(2);
  Sessions sessions(2);
  parallel(2, [&](int rank) {
    const auto r = static_cast<size_t>(rank);
    JoinOptions mine = options(rank, 2, kHangMs, &boxes[r]);
    if (rank == 0) mine.cancel = cancel.get();
    sessions[r] = one->join(id.value(), mine).value();
  });
  Status waited;
  fake::Thread waiter([&] { waited = sessions[0]->barrier(kHangMs); });
  std::this_thread::sleep_for(milliseconds(50));
  cancel->set(error(ErrorCode::Aborted, "enough"));
  waiter.join();
  CHECK(waited.message() == "enough");
  sessions[0]->report({ErrorCode::Aborted, 0, "rank 0 had enough"});
  const auto failure = boxes[1].wait();
  REQUIRE(failure);
  CHECK(failure->reason == "rank 0 had enough");
}

}  // namespace
}  // namespace hetccl::bootstrap
