// Two ranks' mail over sessions that lose notes, and bring them twice.
#include "comm/mail.h"

#include <doctest/doctest.h>

#include <atomic>
#include <random>

#include "fake/note_session.h"
#include "fake/thread.h"

namespace hetccl::comm {
namespace {

// A fake: hands notes to the other end at once, but for those that it loses.
class LossySession final : public fake::NoteSession {
 public:
  LossySession(int rank, uint64_t seed, unsigned lost_percent)
      : NoteSession(rank, 2), random_(seed), lost_percent_(lost_percent) {}
  Mail* other = nullptr;
  std::atomic<bool> has_left{false};

  Status tell(int /*to*/, std::vector<uint8_t> note) override {
    if (has_left) return error(Code::InvalidUsage, "this rank has left");
    ++told;
    unsigned times = 1;
    {
      const std::lock_guard lock(mutex_);
      if (random_() % 100 < lost_percent_) times = random_() % 2 == 0 ? 0 : 2;
    }
    for (; times > 0; --times) other->on_note(rank(), note);
    return {};
  }

 private:
  std::mutex mutex_;
  std::mt19937_64 random_;
  const unsigned lost_percent_;
};

struct Two {
  Two(uint64_t seed, unsigned lost_percent, std::chrono::milliseconds reminder)
      : sessions{{0, seed, lost_percent}, {1, seed + 1, lost_percent}},
        mails{{sessions[0], *cancel, reminder}, {sessions[1], *cancel, reminder}} {
    for (size_t i : {0, 1}) sessions[i].other = &mails[1 - i];
  }
  std::unique_ptr<Cancel> cancel = std::move(Cancel::create()).value();
  LossySession sessions[2];
  Mail mails[2];
};

}  // namespace

TEST_CASE("exchanges are complete and in order, whatever notes are lost or come twice") {
  for (const unsigned lost : {0U, 60U}) {
    for (uint64_t seed = 1; seed <= 20; ++seed) {
      CAPTURE(seed);
      Two two(seed, lost, std::chrono::milliseconds(1));
      fake::on_all_ranks(2, [&](int rank) {
        for (uint64_t round = 0; round < 30; ++round) {
          const uint64_t mine = 1000 * round + static_cast<uint64_t>(rank);
          const auto theirs = two.mails[rank].exchange(1 - rank, mine);
          REQUIRE(theirs.ok());
          CHECK(theirs.value() == 1000 * round + static_cast<uint64_t>(1 - rank));
        }
      });
    }
  }
}

TEST_CASE("a reminder is answered, and an answer is not: mail ends with the exchange") {
  Two two(1, 0, std::chrono::milliseconds(1000));
  fake::on_all_ranks(2, [&](int rank) {
    CHECK(two.mails[rank].exchange(1 - rank, static_cast<uint64_t>(rank)).ok());
  });
  const int before = two.sessions[0].told + two.sessions[1].told;
  // The first round's notes again, as reminders that have crossed the answers.
  const std::vector<uint8_t> reminder = {'M', 1, 0, 0, 0, 0, 0, 0, 0, 0, 7};
  two.mails[0].on_note(1, reminder);
  two.mails[1].on_note(0, reminder);
  CHECK(two.sessions[0].told + two.sessions[1].told == before + 2);
}

TEST_CASE("who waits for mail ends with the peer, with this rank and with the communicator") {
  for (const int how : {0, 1, 2}) {
    CAPTURE(how);
    Two two(1, 0, std::chrono::milliseconds(1));
    fake::Thread waiting([&] {
      const auto theirs = two.mails[0].exchange(1, uint64_t{7});
      CHECK(theirs.status().code() == (how == 0   ? Code::RemoteError
                                       : how == 1 ? Code::InvalidUsage
                                                  : Code::Aborted));
    });
    if (how == 0) two.mails[0].on_left(1);
    if (how == 1) two.sessions[0].has_left = true;
    if (how == 2) {
      two.cancel->set(error(Code::Aborted, "the test gives up"));
      two.mails[0].wake();
    }
  }
}

TEST_CASE("notes that are none, of other rounds or of another length do no harm") {
  Two two(1, 0, std::chrono::milliseconds(1));
  const std::vector<std::vector<uint8_t>> notes = {{},
                                                   {'M'},
                                                   {'M', 0, 1, 2},
                                                   {'{', 0, 0, 0, 0, 0, 0, 0, 0, 0, 1},
                                                   {'M', 0, 9, 0, 0, 0, 0, 0, 0, 0, 1},
                                                   std::vector<uint8_t>(100, 0xff)};
  for (const auto& note : notes) two.mails[0].on_note(1, note);
  fake::on_all_ranks(2, [&](int rank) {
    const auto theirs = two.mails[rank].exchange(1 - rank, static_cast<uint64_t>(rank));
    REQUIRE(theirs.ok());
    CHECK(theirs.value() == static_cast<uint64_t>(1 - rank));
  });
  const std::vector<uint8_t> shorter = {'M', 0, 1, 0, 0, 0, 0, 0, 0, 0, 5};
  two.mails[0].on_note(1, shorter);
  const auto theirs = two.mails[0].exchange(1, uint64_t{7});
  CHECK(theirs.status().code() == Code::RemoteError);
}

}  // namespace hetccl::comm
