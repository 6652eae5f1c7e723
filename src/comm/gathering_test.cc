// Some ranks meet without the others, over sessions that lose notes or deliver them twice.
#include "comm/gathering.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <random>
#include <set>

#include "fake/note_session.h"
#include "fake/patience.h"
#include "fake/thread.h"

namespace hetccl::comm {
namespace {

using bootstrap::UniqueId;
using std::chrono::milliseconds;

// A fake that delivers notes at once, except for those that it loses.
class LossyLink final : public fake::NoteSession {
 public:
  LossyLink(int rank, int n_ranks, unsigned lost_percent)
      : NoteSession(rank, n_ranks), random_(static_cast<uint64_t>(rank)), lost_(lost_percent) {}
  std::vector<std::unique_ptr<Gathering>>* all = nullptr;

  Status send_note(int to, std::vector<uint8_t> note) override {
    unsigned times = 1;
    {
      const std::lock_guard lock(mutex_);
      if (random_() % 100 < lost_) times = random_() % 2 == 0 ? 0 : 2;
    }
    for (; times > 0; --times) (*all)[static_cast<size_t>(to)]->on_note(rank(), note);
    return {};
  }

 private:
  std::mutex mutex_;
  std::mt19937_64 random_;
  const unsigned lost_;
};

struct Job {
  Job(int n_ranks, unsigned lost_percent, milliseconds reminder) {
    for (int rank = 0; rank < n_ranks; ++rank) {
      links.push_back(std::make_unique<LossyLink>(rank, n_ranks, lost_percent));
      links.back()->all = &all;
      const auto session = [link = links.back().get()]() -> bootstrap::Session& { return *link; };
      const auto ended = [this] {
        return failed ? error(ErrorCode::Aborted, "it was aborted") : Status();
      };
      all.push_back(std::make_unique<Gathering>(
          Gathering::Of{session, [this](int who) { return who == left; }, ended}, reminder));
    }
  }
  Result<UniqueId> agree(int rank, const std::vector<int>& members, int64_t limit_ms) {
    const auto make_id = [this] {
      UniqueId id{};
      id.fill(++made);
      return Result<UniqueId>(id);
    };
    return all[static_cast<size_t>(rank)]->agree(
        members, make_id, steady_clock().now() + milliseconds(limit_ms), *cancel);
  }

  std::vector<std::unique_ptr<LossyLink>> links;
  std::vector<std::unique_ptr<Gathering>> all;
  std::atomic<uint8_t> made{0};
  std::atomic<int> left{-1};
  std::atomic<bool> failed{false};
  std::unique_ptr<Cancel> cancel = Cancel::create().value();
};

TEST_CASE("an abort of what is made ends the wait for those who never call") {
  Job job(3, 0, milliseconds(10));
  std::array<Status, 2> got;
  std::thread aborts([&] {
    std::this_thread::sleep_for(milliseconds(20));
    job.cancel->set(error(ErrorCode::Aborted, "nobody wants it"));
  });
  fake::on_all_ranks(2, [&](int rank) {
    got[static_cast<size_t>(rank)] = job.agree(rank, {0, 1, 2}, fake::kHangMs).status();
  });
  aborts.join();
  for (const Status& status : got) CHECK(status.code() == ErrorCode::Aborted);
}

TEST_CASE("ranks agree, time after time, though notes get lost and come twice") {
  Job job(4, 40, milliseconds(1));
  const std::vector<std::vector<int>> rounds = {{0, 1, 3}, {0, 1, 3}, {1, 3}, {0, 3}, {0, 1, 2, 3},
                                                {1, 2},    {0, 1, 3}, {2},    {1, 3}};
  std::vector<std::vector<uint8_t>> got(4, std::vector<uint8_t>(rounds.size()));
  fake::on_all_ranks(4, [&](int rank) {
    for (size_t i = 0; i < rounds.size(); ++i) {
      const auto& members = rounds[i];
      if (std::find(members.begin(), members.end(), rank) == members.end()) continue;
      const auto id = job.agree(rank, members, fake::kHangMs);
      REQUIRE_MESSAGE(id.ok(), id.status().message());
      got[static_cast<size_t>(rank)][i] = id.value()[0];
    }
  });
  std::set<uint8_t> ids;
  for (size_t i = 0; i < rounds.size(); ++i) {
    const uint8_t id = got[static_cast<size_t>(rounds[i].front())][i];
    for (const int rank : rounds[i]) CHECK(got[static_cast<size_t>(rank)][i] == id);
    ids.insert(id);
  }
  CHECK(ids.size() == rounds.size());  // each round has its own id
}

TEST_CASE("who gives up is not taken to have called, and the next meeting is another") {
  Job job(2, 0, std::chrono::seconds(1));
  const auto alone = job.agree(1, {0, 1}, 1);
  CHECK(alone.status().code() == ErrorCode::Timeout);
  CHECK(alone.status().message().find("rank 0, the lowest that stays") == 0);
  const auto leads = job.agree(0, {0, 1}, 1);
  CHECK(leads.status().code() == ErrorCode::Timeout);
  CHECK(leads.status().message() == "rank 1 has not called hetcclCommShrink: exclude it, too");
  fake::on_all_ranks(2, [&](int rank) {
    const auto id = job.agree(rank, {0, 1}, fake::kHangMs);
    CHECK(id.ok());
  });
}

TEST_CASE("ranks that disagree, leave or are aborted end it on all that wait") {
  for (const char* why : {"disagrees", "leaves", "aborted"}) {
    CAPTURE(why);
    Job job(3, 0, milliseconds(1));
    std::vector<Status> got(3);
    fake::on_all_ranks(3, [&](int rank) {
      if (rank == 2 && why[0] != 'd') {
        (why[0] == 'l' ? static_cast<void>(job.left = 2) : static_cast<void>(job.failed = true));
        for (const auto& one : job.all) one->on_left();
        return;
      }
      const std::vector<int> members = rank == 2 ? std::vector{0, 2} : std::vector{0, 1, 2};
      got[static_cast<size_t>(rank)] = job.agree(rank, members, fake::kHangMs).status();
    });
    const char* const text = why[0] == 'd'   ? "rank 2 excludes rank 1, rank 0 does not"
                             : why[0] == 'l' ? "rank 2 has left the communicator"
                                             : "it was aborted";
    for (size_t rank = 0; rank < 2; ++rank) {
      CHECK(!got[rank].ok());
      CHECK(got[rank].message().find(text) != std::string::npos);
    }
  }
}

}  // namespace
}  // namespace hetccl::comm
