// Two ranks exchange mail over sessions that lose notes or deliver them twice.
#include "comm/mail.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <random>

#include "fake/manual_clock.h"
#include "fake/note_session.h"

namespace hetccl::comm {
namespace {

// A fake that delivers notes to the other end at once, except for those that it loses.
class LossySession final : public fake::NoteSession {
 public:
  LossySession(int rank, uint64_t seed, unsigned lost_percent)
      : NoteSession(rank, 2), random_(seed), lost_percent_(lost_percent) {}
  Mail* other = nullptr;
  std::atomic<bool> has_left{false};

  Status send_note(int /*to*/, std::vector<uint8_t> note) override {
    if (has_left) return error(ErrorCode::InvalidUsage, "this rank has left");
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
  Two(uint64_t seed, unsigned lost_percent)
      : sessions{{0, seed, lost_percent}, {1, seed + 1, lost_percent}},
        mails{{sessions[0], [this] { ++rung[0]; }}, {sessions[1], [this] { ++rung[1]; }}} {
    for (size_t i : {0, 1}) sessions[i].other = &mails[1 - i];
  }
  /// Returns the note that rank `i` has received in its current exchange; 0: none yet.
  Result<uint64_t> receive(size_t i) {
    again = TimePoint::max();
    const auto heard = mails[i].take<uint64_t>(static_cast<int>(1 - i), clock.now(), again);
    return heard ? *heard : Result<uint64_t>(uint64_t{0});
  }
  /// Waits until both ends have the other's note.
  std::array<uint64_t, 2> exchange(const std::array<uint64_t, 2>& told) {
    for (size_t i : {0, 1}) mails[i].begin(static_cast<int>(1 - i), told[i]);
    std::array<uint64_t, 2> heard{};
    for (int turn = 0; (heard[0] == 0 || heard[1] == 0) && turn < 10'000; ++turn) {
      for (size_t i : {0, 1}) {
        if (heard[i] == 0) heard[i] = receive(i).value();
        clock.time = std::max(clock.time, std::min(again, clock.time + std::chrono::hours(1)));
      }
    }
    return heard;
  }
  fake::ManualClock clock;
  TimePoint again{};
  std::array<std::atomic<int>, 2> rung{};
  LossySession sessions[2];
  Mail mails[2];
};

}  // namespace

TEST_CASE("exchanges are complete and in order, whatever notes are lost or come twice") {
  for (const unsigned lost : {0U, 60U}) {
    for (uint64_t seed = 1; seed <= 20; ++seed) {
      CAPTURE(seed);
      Two two(seed, lost);
      for (uint64_t round = 1; round <= 30; ++round) {
        const std::array<uint64_t, 2> told{1000 * round, 1000 * round + 1};
        CHECK(two.exchange(told) == std::array<uint64_t, 2>{told[1], told[0]});
      }
    }
  }
}

TEST_CASE("where no note is lost nobody waits to be reminded, whoever comes first") {
  Two two(1, 0);
  for (uint64_t round = 1; round <= 10; ++round) {
    const size_t first = round % 2, second = 1 - first;
    two.mails[first].begin(static_cast<int>(second), 2 * round);
    CHECK(two.receive(first).value() == 0);
    two.mails[second].begin(static_cast<int>(first), 2 * round + 1);
    CHECK(two.receive(second).value() == 2 * round);  // it arrived before this end began
    CHECK(two.receive(first).value() == 2 * round + 1);
  }
}

TEST_CASE("who hears nothing reminds the other end, less and less often in the first exchange") {
  Two two(1, 0);
  const TimePoint begin = two.clock.now();
  two.sessions[0].other = &two.mails[0];  // delivers to nobody
  two.mails[0].begin(1, uint64_t{7});
  std::vector<int64_t> told_at;
  for (int told = 0; told_at.size() < 8; two.clock.time = two.again) {
    CHECK(two.receive(0).value() == 0);
    if (two.sessions[0].told > told)
      told_at.push_back(
          std::chrono::duration_cast<std::chrono::seconds>(two.clock.now() - begin).count());
    told = two.sessions[0].told;
  }
  CHECK(told_at == std::vector<int64_t>{0, 1, 3, 7, 15, 31, 63, 95});
}

TEST_CASE("a reminder is answered, and an answer is not: mail ends with the exchange") {
  Two two(1, 0);
  two.exchange({1, 2});
  const int before = two.sessions[0].told + two.sessions[1].told;
  // Repeats the first round's notes, as reminders that crossed the answers.
  const std::vector<uint8_t> reminder = {'M', 1, 0, 0, 0, 0, 0, 0, 0, 0, 7};
  two.mails[0].on_note(1, reminder);
  two.mails[1].on_note(0, reminder);
  CHECK(two.sessions[0].told + two.sessions[1].told == before + 2);
}

TEST_CASE("an exchange ends with the peer and with this rank, and news of either rings") {
  Two two(1, 0);
  two.mails[0].begin(1, uint64_t{7});
  CHECK(two.receive(0).value() == 0);
  two.mails[0].on_left(1);
  CHECK(two.rung[0] == 1);
  CHECK(two.receive(0).status().code() == ErrorCode::RemoteError);
  two.sessions[1].has_left = true;
  two.mails[1].begin(0, uint64_t{7});
  CHECK(two.rung[1] == 1);
  CHECK(two.receive(1).value() == 7);  // sent before it left
  two.mails[1].begin(0, uint64_t{8});
  CHECK(two.receive(1).status().code() == ErrorCode::InvalidUsage);
}

TEST_CASE("notes that are none, of other rounds or of another length do no harm") {
  Two two(1, 0);
  const std::vector<std::vector<uint8_t>> notes = {{},
                                                   {'M'},
                                                   {'M', 0, 1, 2},
                                                   {'{', 0, 0, 0, 0, 0, 0, 0, 0, 0, 1},
                                                   {'M', 0, 9, 0, 0, 0, 0, 0, 0, 0, 1},
                                                   std::vector<uint8_t>(100, 0xff)};
  for (const auto& note : notes) two.mails[0].on_note(1, note);
  CHECK(two.exchange({1, 2}) == std::array<uint64_t, 2>{2, 1});
  const std::vector<uint8_t> shorter = {'M', 0, 1, 0, 0, 0, 0, 0, 0, 0, 5};
  two.mails[0].on_note(1, shorter);
  two.mails[0].begin(1, uint64_t{7});
  CHECK(two.receive(0).status().code() == ErrorCode::RemoteError);
}

}  // namespace hetccl::comm
