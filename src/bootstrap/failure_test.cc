// Ranks that die, stop, or see a failure: every survivor is told the same first cause.
#include <doctest/doctest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bootstrap/testing.h"
#include "fake/thread.h"

namespace hetccl::bootstrap {
namespace {

using namespace testing;
using std::chrono::milliseconds;

TEST_CASE("a service that vanishes with its rank is named to all others") {
  const auto one = service(), two = service();
  auto three = service();
  const auto id = one->unique_id();
  std::vector<FailureBox> boxes(3);
  const Sessions sessions = join_all({one.get(), two.get(), three.get()}, id.value(), 3, &boxes);
  REQUIRE(complete(sessions));
  Status blocked;
  fake::Thread waiter([&] { blocked = sessions[0]->barrier(kHangMs); });
  std::this_thread::sleep_for(milliseconds(50));
  three.reset();
  waiter.join();
  CHECK(blocked.code() == ErrorCode::RemoteError);
  CHECK(contains(blocked.message(), "rank 2 (host t, pid 1002) was lost: connection closed"));
  for (size_t survivor : {size_t{0}, size_t{1}}) {
    const auto failure = boxes[survivor].wait();
    REQUIRE(failure);
    CHECK(failure->rank == 2);
    CHECK(failure->reason == blocked.message());
    CHECK(boxes[survivor].count() == 1);
  }
  CHECK(boxes[2].count() == 0);
  CHECK(sessions[1]->barrier(1'000).message() == blocked.message());
}

TEST_CASE("the coordinator's process is named when it goes without leaving") {
  auto one = service();
  const auto two = service();
  const auto id = one->unique_id();
  std::vector<FailureBox> boxes(2);
  const Sessions sessions = join_all({one.get(), two.get()}, id.value(), 2, &boxes);
  REQUIRE(complete(sessions));
  one.reset();
  const auto failure = boxes[1].wait();
  REQUIRE(failure);
  CHECK(failure->rank == 0);
  CHECK(contains(failure->reason, "rank 0 (host t, pid 1000) was lost"));
}

TEST_CASE("of several reports the first is everybody's") {
  const auto one = service(), two = service();
  const auto id = one->unique_id();
  std::vector<FailureBox> boxes(4);
  const Sessions sessions = join_all({one.get(), two.get()}, id.value(), 4, &boxes);
  REQUIRE(complete(sessions));
  parallel(4, [&](int rank) {
    sessions[static_cast<size_t>(rank)]->report(
        {ErrorCode::Timeout, (rank + 1) % 4, "seen by rank " + std::to_string(rank)});
  });
  const auto first = boxes[0].wait();
  REQUIRE(first);
  CHECK(first->code == ErrorCode::Timeout);
  for (size_t rank = 0; rank < 4; ++rank) {
    const auto failure = boxes[rank].wait();
    REQUIRE(failure);
    CHECK(failure->reason == first->reason);
    CHECK(failure->rank == first->rank);
    CHECK(boxes[rank].count() == 1);
  }
}

TEST_CASE("an exchange that a rank does not enter names it") {
  const auto one = service();
  const auto id = one->unique_id();
  const Sessions sessions = join_all({one.get()}, id.value(), 3);
  REQUIRE(complete(sessions));
  const int64_t limit_ms = patient_ms(300);
  Status zero, two;
  parallel(2, [&](int i) { (i == 0 ? zero : two) = sessions[i == 0 ? 0 : 2]->barrier(limit_ms); });
  CHECK(zero.code() == ErrorCode::Timeout);
  CHECK(contains(zero.message(), format("rank 1 of 3 did not enter the exchange within %lld ms",
                                        static_cast<long long>(limit_ms))));
  CHECK(two.message() == zero.message());
}

TEST_CASE("an exchange that a rank has left is an error at once") {
  const auto one = service();
  const auto id = one->unique_id();
  const Sessions sessions = join_all({one.get()}, id.value(), 2);
  REQUIRE(complete(sessions));
  sessions[1]->leave(0);
  const Status alone = sessions[0]->barrier(kHangMs);
  CHECK(alone.code() == ErrorCode::RemoteError);
  CHECK(contains(alone.message(), "rank 1 (host t, pid 1001) left"));
}

TEST_CASE("after leave has returned nothing is told, whoever fails meanwhile") {
  for (int round = 0; round < 20; ++round) {
    const auto one = service();
    auto two = service();
    const auto id = one->unique_id();
    auto box = std::make_unique<FailureBox>();
    auto first = fake::Thread();
    std::unique_ptr<Session> session;
    first = fake::Thread(
        [&] { session = one->join(id.value(), options(0, 2, kHangMs, box.get())).value(); });
    const auto other = two->join(id.value(), options(1, 2));
    first.join();
    fake::Thread killer([&] { two.reset(); });
    session->leave(0);
    box.reset();  // a late callback would be a use after free
    killer.join();
  }
}

// --- Ranks as processes ---

struct Child {
  pid_t pid = -1;
  int id_pipe = -1;
};

// Runs a rank in its own process: joins by the id from the pipe, and exits with 0 once it is told
// that `victim` is lost.
Child fork_rank(int rank, int n_ranks, int victim, int64_t liveness_ms) {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t pid = fork();
  REQUIRE(pid >= 0);
  if (pid > 0) {
    close(ends[0]);
    return {pid, ends[1]};
  }
  close(ends[1]);
  alarm(fake::kAlarm);
  UniqueId id;
  if (read(ends[0], id.data(), id.size()) != static_cast<ssize_t>(id.size())) _exit(2);
  FailureBox box;
  const auto mine = service(liveness_ms);
  auto session = mine->join(id, options(rank, n_ranks, kHangMs, &box));
  if (!session.ok()) _exit(3);
  if (!(*session)->barrier(kHangMs).ok()) _exit(4);
  const auto failure = box.wait();
  _exit(failure && failure->rank == victim ? 0 : 5);
}

int exit_code(const Child& child) {
  int status = 0;
  close(child.id_pipe);
  if (waitpid(child.pid, &status, 0) != child.pid) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

// Runs four ranks, with the coordinator in this process, and sends `fatal` to rank 2. Returns how
// long the news took.
milliseconds lose_rank_2(int fatal, int64_t liveness_ms, std::string* reason) {
  std::vector<Child> children;
  for (int rank = 1; rank < 4; ++rank) children.push_back(fork_rank(rank, 4, 2, liveness_ms));
  const auto mine = service(liveness_ms);
  const auto id = mine->unique_id();
  REQUIRE(id.ok());
  for (const Child& child : children) {
    REQUIRE(write(child.id_pipe, id.value().data(), id.value().size()) == 128);
  }
  FailureBox box;
  auto session = mine->join(id.value(), options(0, 4, kHangMs, &box));
  REQUIRE(session.ok());
  CHECK(session.value()->barrier(kHangMs).ok());
  const auto killed = steady_clock().now();
  kill(children[1].pid, fatal);
  const auto failure = box.wait();
  const auto took = std::chrono::duration_cast<milliseconds>(steady_clock().now() - killed);
  REQUIRE(failure);
  CHECK(failure->rank == 2);
  *reason = failure->reason;
  CHECK(exit_code(children[0]) == 0);
  CHECK(exit_code(children[2]) == 0);
  if (fatal == SIGSTOP) {
    kill(children[1].pid, SIGCONT);  // it learns that it was given up, and by which rank
    CHECK(exit_code(children[1]) == 0);
  } else {
    CHECK(exit_code(children[1]) == -fatal);
  }
  return took;
}

TEST_CASE("a killed process is named to every survivor at once") {
  std::string reason;
  const milliseconds took = lose_rank_2(SIGKILL, kLivenessMs, &reason);
  CHECK(contains(reason, "rank 2 (host t, pid 1002) was lost: connection closed"));
  CHECK(took.count() < kLivenessMs / 2);
}

TEST_CASE("a stopped process is named by its silence") {
  std::string reason;
  const int64_t liveness_ms = patient_ms(800);
  const milliseconds took = lose_rank_2(SIGSTOP, liveness_ms, &reason);
  MESSAGE("noticed after ", took.count(), " ms");
  CHECK(contains(reason, format("rank 2 (host t, pid 1002) was lost: silent for %lld ms",
                                static_cast<long long>(liveness_ms))));
  CHECK(took < kHang / 2);
}

TEST_CASE("the coordinator's killed process is named by the ranks themselves") {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t host = fork();
  REQUIRE(host >= 0);
  if (host == 0) {
    alarm(fake::kAlarm);
    const auto mine = service();
    const auto id = mine->unique_id();
    if (!id.ok() || write(ends[1], id.value().data(), 128) != 128) _exit(2);
    const auto session = mine->join(id.value(), options(0, 3));
    for (;;) pause();
  }
  UniqueId id;
  REQUIRE(read(ends[0], id.data(), id.size()) == 128);
  const auto mine = service();
  std::vector<FailureBox> boxes(2);
  Sessions sessions(2);
  parallel(2, [&](int i) {
    auto joined = mine->join(id, options(i + 1, 3, kHangMs, &boxes[static_cast<size_t>(i)]));
    if (joined.ok()) sessions[static_cast<size_t>(i)] = std::move(joined).value();
  });
  REQUIRE(complete(sessions));
  kill(host, SIGKILL);
  for (FailureBox& box : boxes) {
    const auto failure = box.wait();
    REQUIRE(failure);
    CHECK(failure->rank == 0);
    CHECK(contains(failure->reason, "rank 0 (host t, pid 1000) was lost: connection closed"));
  }
  waitpid(host, nullptr, 0);
  close(ends[0]);
  close(ends[1]);
}

TEST_CASE("a forked child of a live service ends without harm") {
  const auto one = service();
  const auto id = one->unique_id();
  FailureBox box;
  auto session = one->join(id.value(), options(0, 1, kHangMs, &box));
  REQUIRE(session.ok());
  const pid_t pid = fork();
  REQUIRE(pid >= 0);
  if (pid == 0) {
    alarm(fake::kAlarm);
    (*session)->leave(0);
    const bool refused = !one->unique_id().ok() && !(*session)->barrier(1'000).ok();
    _exit(refused ? 0 : 1);
  }
  int status = 0;
  CHECK(waitpid(pid, &status, 0) == pid);
  CHECK(status == 0);
  CHECK((*session)->barrier(kHangMs).ok());
  CHECK(box.count() == 0);
}

}  // namespace
}  // namespace hetccl::bootstrap
