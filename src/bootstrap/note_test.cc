// Notes between ranks: their receivers, their order, and what they do not outlive.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>

#include "bootstrap/coordinator.h"
#include "bootstrap/dial.h"
#include "bootstrap/frame.h"
#include "bootstrap/testing.h"
#include "bootstrap/unique_id.h"
#include "fake/sample.h"
#include "fake/thread.h"

namespace hetccl::bootstrap {
namespace {

using namespace testing;
using std::chrono::milliseconds;

TimePoint before_timeout() {
  return steady_clock().now() + kHang;
}

Bytes bytes(const std::string& text) {
  return {text.begin(), text.end()};
}

/// Collects one rank's events, as "FROM: TEXT" and "RANK left", in order.
class Inbox {
 public:
  JoinOptions options(int rank, int n_ranks, FailureBox* failures = nullptr) {
    JoinOptions made = testing::options(rank, n_ranks, kHangMs, failures);
    made.on_note = [this](int from, std::span<const uint8_t> note) {
      add(std::to_string(from) + ": " + std::string(note.begin(), note.end()));
    };
    made.on_left = [this](int who, uint64_t) { add(std::to_string(who) + " left"); };
    return made;
  }
  void add(std::string line) {
    std::lock_guard lock(mutex_);
    lines_.push_back(std::move(line));
    changed_.notify_all();
  }
  /// Returns the first `n` lines once they have come, or fewer after a while.
  std::vector<std::string> wait(size_t n) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kHang, [&] { return lines_.size() >= n; });
    return lines_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> lines_;
};

using Lines = std::vector<std::string>;

/// Three ranks on two services. The coordinator is in the process of ranks 0 and 2.
struct Trio {
  std::unique_ptr<Service> one = service(), two = service();
  std::array<Inbox, 3> inboxes;
  std::array<FailureBox, 3> failures;
  Sessions sessions{3};

  Trio() {
    const auto id = one->unique_id();
    parallel(3, [&](int rank) {
      const auto at = static_cast<size_t>(rank);
      auto joined =
          (rank == 1 ? two : one)->join(id.value(), inboxes[at].options(rank, 3, &failures[at]));
      if (joined.ok()) sessions[at] = std::move(joined).value();
    });
    REQUIRE(complete(sessions));
  }
  ~Trio() {
    sessions.clear();
    for (FailureBox& box : failures) CHECK(box.count() == 0);
  }
};

TEST_CASE("a note reaches the rank that it is told to, or every rank but its sender") {
  Trio trio;
  CHECK(trio.sessions[0]->send_note(1, bytes("to one")).ok());
  CHECK(trio.sessions[0]->send_note(kEveryone, bytes("to all")).ok());
  CHECK(trio.sessions[0]->send_note(2, {}).ok());
  CHECK(trio.sessions[0]->send_note(0, bytes("to myself")).ok());
  CHECK(trio.inboxes[1].wait(2) == Lines{"0: to one", "0: to all"});
  CHECK(trio.inboxes[2].wait(2) == Lines{"0: to all", "0: "});
  CHECK(trio.inboxes[0].wait(1) == Lines{"0: to myself"});
}

TEST_CASE("a note to all reaches its sender too: all ranks hear such notes in one order") {
  constexpr size_t kNotes = 300;
  Trio trio;
  parallel(3, [&](int rank) {
    for (size_t i = 0; i < kNotes; ++i)
      CHECK(
          trio.sessions[static_cast<size_t>(rank)]->send_note(kAll, bytes(std::to_string(i))).ok());
  });
  const Lines first = trio.inboxes[0].wait(3 * kNotes);
  CHECK(first.size() == 3 * kNotes);
  CHECK(trio.inboxes[1].wait(3 * kNotes) == first);
  CHECK(trio.inboxes[2].wait(3 * kNotes) == first);
}

TEST_CASE("2,000 notes of each rank to everyone arrive in the order of their sender") {
  constexpr int kNotes = 2'000;
  Trio trio;
  parallel(3, [&](int rank) {
    for (int i = 0; i < kNotes; ++i)
      (void)trio.sessions[static_cast<size_t>(rank)]->send_note(kEveryone,
                                                                bytes(std::to_string(i)));
  });
  for (int rank = 0; rank < 3; ++rank) {
    const Lines lines = trio.inboxes[static_cast<size_t>(rank)].wait(2 * kNotes);
    CHECK(lines.size() == 2 * kNotes);
    std::array<int, 3> next{};
    size_t wrong = 0;
    for (const std::string& line : lines) {
      const auto from = static_cast<size_t>(line[0] - '0');
      if (line != std::to_string(from) + ": " + std::to_string(next[from]++)) ++wrong;
    }
    CHECK(wrong == 0);
    CHECK(next[static_cast<size_t>(rank)] == 0);
  }
}

TEST_CASE("exchanges and notes do not disturb each other") {
  Trio trio;
  std::vector<int> right(3);
  parallel(3, [&](int rank) {
    const auto at = static_cast<size_t>(rank);
    bool good = true;
    for (int round = 0; good && round < 20; ++round) {
      (void)trio.sessions[at]->send_note(kEveryone, Bytes(kMaxNote, 'n'));
      const auto all = trio.sessions[at]->all_gather(Bytes(100'000, 'g'), kHangMs);
      good = all.ok() && all.value()[1] == Bytes(100'000, 'g');
    }
    right[at] = good;
  });
  CHECK(right == std::vector<int>(3, 1));
  for (Inbox& inbox : trio.inboxes) CHECK(inbox.wait(40).size() == 40);
}

TEST_CASE("a note may be told from within on_note") {
  constexpr int kNotes = 300;
  const auto one = service(), two = service();
  const auto id = one->unique_id();
  Inbox inbox;
  std::atomic<Session*> echo = nullptr;
  JoinOptions echoing = options(1, 2);
  echoing.on_note = [&](int from, std::span<const uint8_t> note) {
    (void)echo.load()->send_note(from, Bytes(note.begin(), note.end()));
  };
  Sessions sessions(2);
  parallel(2, [&](int rank) {
    auto joined =
        rank == 0 ? one->join(id.value(), inbox.options(0, 2)) : two->join(id.value(), echoing);
    if (joined.ok()) sessions[static_cast<size_t>(rank)] = std::move(joined).value();
  });
  REQUIRE(complete(sessions));
  echo = sessions[1].get();
  for (int i = 0; i < kNotes; ++i) CHECK(sessions[0]->send_note(1, bytes(std::to_string(i))).ok());
  const Lines lines = inbox.wait(kNotes);
  REQUIRE(lines.size() == kNotes);
  CHECK(lines.front() == "1: 0");
  CHECK(lines.back() == "1: " + std::to_string(kNotes - 1));
}

TEST_CASE("the longest note arrives; a longer one, or one to no rank, is an error") {
  Trio trio;
  CHECK(trio.sessions[0]->send_note(1, Bytes(kMaxNote + 1)).code() == ErrorCode::InvalidArgument);
  CHECK(trio.sessions[0]->send_note(3, {}).code() == ErrorCode::InvalidArgument);
  CHECK(trio.sessions[0]->send_note(-3, {}).code() == ErrorCode::InvalidArgument);
  CHECK(trio.sessions[0]->send_note(1, Bytes(kMaxNote, 'x')).ok());
  CHECK(trio.inboxes[1].wait(1) == Lines{"0: " + std::string(kMaxNote, 'x')});
}

TEST_CASE("a note to a rank that has left is dropped, the others hear theirs") {
  Trio trio;
  trio.sessions[2]->leave(0);
  CHECK(trio.inboxes[1].wait(1) == Lines{"2 left"});
  CHECK(trio.sessions[1]->send_note(2, bytes("too late")).ok());
  CHECK(trio.sessions[1]->send_note(kEveryone, bytes("to all")).ok());
  const Lines lines = trio.inboxes[0].wait(2);
  CHECK(std::count(lines.begin(), lines.end(), "1: to all") == 1);
  CHECK(trio.inboxes[2].wait(0).empty());
}

TEST_CASE("what a rank tells before it leaves is heard before its leave") {
  // Rank 2 is in the coordinator's process, so the others are told at once that it leaves.
  for (const size_t leaver : {size_t{1}, size_t{2}}) {
    Trio trio;
    const std::string name = std::to_string(leaver);
    for (const char* text : {"a", "b", "c"})
      CHECK(trio.sessions[leaver]->send_note(kEveryone, bytes(text)).ok());
    trio.sessions[leaver]->leave(3);
    CHECK(trio.sessions[leaver]->send_note(0, bytes("too late")).code() == ErrorCode::InvalidUsage);
    const Lines expected = {name + ": a", name + ": b", name + ": c", name + " left"};
    CHECK(trio.inboxes[0].wait(4) == expected);
    CHECK(trio.inboxes[3 - leaver].wait(4) == expected);
  }
}

TEST_CASE("after leave has returned no note is heard") {
  for (uint64_t round = 0; round < 20; ++round) {
    if (!fake::is_sampled(round, 4)) continue;
    const auto one = service(), two = service();
    const auto id = one->unique_id();
    auto inbox = std::make_unique<Inbox>();
    Sessions sessions(2);
    parallel(2, [&](int rank) {
      auto joined = rank == 0 ? one->join(id.value(), inbox->options(0, 2))
                              : two->join(id.value(), options(1, 2));
      if (joined.ok()) sessions[static_cast<size_t>(rank)] = std::move(joined).value();
    });
    REQUIRE(complete(sessions));
    std::atomic<bool> stop = false;
    fake::Thread teller([&] {
      for (; !stop; std::this_thread::sleep_for(std::chrono::microseconds(20)))
        (void)sessions[1]->send_note(0, {1});
    });
    CHECK(!inbox->wait(1).empty());
    sessions[0]->leave(0);
    inbox.reset();  // a late callback would be a use after free
    stop = true;
    teller.join();
  }
}

TEST_CASE("notes told from within on_note while the session ends are dropped") {
  const auto one = service();
  const auto id = one->unique_id();
  std::atomic<Session*> raw = nullptr;
  std::atomic<bool> inside = false;
  JoinOptions mine = options(0, 1);
  mine.on_note = [&](int, std::span<const uint8_t>) {
    inside = true;
    std::this_thread::sleep_for(milliseconds(100));  // the session's leave waits by now
    for (int i = 0; i < 5'000; ++i) (void)raw.load()->send_note(0, {1});
  };
  auto joined = one->join(id.value(), mine);
  REQUIRE(joined.ok());
  std::unique_ptr<Session> session = std::move(joined).value();
  raw = session.get();
  CHECK(session->send_note(0, {}).ok());
  while (!inside) std::this_thread::sleep_for(milliseconds(1));
  session.reset();  // the tasks of 5,000 notes run after it: none may touch the session
  CHECK(one->unique_id().ok());
}

TEST_CASE("a rank without on_note drops notes") {
  const auto one = service();
  const auto id = one->unique_id();
  const Sessions sessions = join_all({one.get()}, id.value(), 2);
  REQUIRE(complete(sessions));
  CHECK(sessions[0]->send_note(1, bytes("unheard")).ok());
  std::vector<int> right(2);
  parallel(2, [&](int rank) {
    right[static_cast<size_t>(rank)] = sessions[static_cast<size_t>(rank)]->barrier(kHangMs).ok();
  });
  CHECK(right == std::vector<int>(2, 1));
}

TEST_CASE("tell says so when nothing can be sent any more") {
  auto one = service();
  const auto two = service();
  const auto id = one->unique_id();
  std::vector<FailureBox> boxes(2);
  Sessions sessions = join_all({one.get(), two.get()}, id.value(), 2, &boxes);
  REQUIRE(complete(sessions));
  SUBCASE("the communicator has failed") {
    sessions[0]->report({ErrorCode::RemoteError, 0, "rank 0 is odd"});
    REQUIRE(boxes[1].wait());
    CHECK(sessions[1]->send_note(0, {}).message() == "rank 0 is odd");
  }
  SUBCASE("the coordinator has gone in peace") {
    sessions[0].reset();
    one.reset();
    Status status;
    for (const TimePoint limit = before_timeout(); status.ok() && steady_clock().now() < limit;) {
      std::this_thread::sleep_for(milliseconds(10));
      status = sessions[1]->send_note(0, {});
    }
    CHECK(status.code() == ErrorCode::RemoteError);
    CHECK(boxes[1].count() == 0);
  }
  SUBCASE("this rank's service is gone") {
    one.reset();
    CHECK(sessions[0]->send_note(1, {}).code() == ErrorCode::Aborted);
  }
}

// --- A receiver that does not read ---

// Returns the next note's bytes, skipping heartbeats and the welcome.
Bytes next_note(const net::Wire& wire) {
  for (;;) {
    uint8_t head[kHeaderBytes];
    REQUIRE(net::recv_all(wire.fd(), head, sizeof head, before_timeout()).ok());
    const auto header = decode_header(head);
    REQUIRE(header);
    Bytes payload(header->payload_bytes);
    REQUIRE(net::recv_all(wire.fd(), payload.data(), payload.size(), before_timeout()).ok());
    if (header->type != FrameType::Noted) continue;
    const auto note = decode_note(payload);
    REQUIRE(note);
    CHECK(note->peer == 0);
    return {note->bytes.begin(), note->bytes.end()};
  }
}

TEST_CASE("a rank that does not read loses notes and nothing else; the others lose none") {
  constexpr int kRounds = 64, kPerRound = 32;  // each half the bound; in sum far more than sockets
                                               // hold
  const auto one = service();
  const auto id = one->unique_id();
  const Invitation invitation = decode(id.value()).value();
  auto slow = dial(invitation, {1, {invitation.secret}, nullptr, before_timeout(), kHang});
  REQUIRE(slow.ok());
  const Bytes join = encode(Join{1, 3, kHangMs, kHangMs, kHangMs, 1, "slow"});
  REQUIRE(net::send_all(slow->fd(), join.data(), join.size(), before_timeout()).ok());
  FailureBox failures;
  Inbox inbox;
  Sessions sessions(3);
  parallel(2, [&](int i) {
    auto joined =
        one->join(id.value(), i == 0 ? options(0, 3, kHangMs, &failures) : inbox.options(2, 3));
    if (joined.ok()) sessions[i == 0 ? 0 : 2] = std::move(joined).value();
  });
  REQUIRE((sessions[0] && sessions[2]));
  for (int round = 0; round < kRounds; ++round) {
    for (int i = 0; i < kPerRound; ++i) {
      Bytes note(kMaxNote, static_cast<uint8_t>(round));
      (void)sessions[0]->send_note(1, std::move(note));
    }
    (void)sessions[0]->send_note(2, {});
    REQUIRE(inbox.wait(static_cast<size_t>(round) + 1).size() == static_cast<size_t>(round) + 1);
  }
  std::atomic<bool> heard = false;
  fake::Thread teller([&] {
    for (; !heard; std::this_thread::sleep_for(milliseconds(10)))
      (void)sessions[0]->send_note(1, bytes("again"));
  });
  int full = 0;
  uint8_t newest = 0;
  for (Bytes note = next_note(*slow); note != bytes("again"); note = next_note(*slow)) {
    CHECK(note.size() == kMaxNote);
    CHECK(note.front() >= newest);
    newest = note.front();
    ++full;
  }
  heard = true;
  teller.join();
  CHECK(full >= kPerRound);
  CHECK(full < kRounds * kPerRound);
  MESSAGE(full << " of " << kRounds * kPerRound << " notes waited for the slow rank");
  CHECK(failures.count() == 0);
}

}  // namespace
}  // namespace hetccl::bootstrap
