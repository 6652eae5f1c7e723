// Opens pairs among several ranks under a seeded schedule, with a clock that only the schedule
// moves. Notes get lost, come twice or overtake each other; libraries are late or fail; ranks
// leave. A seed replays a failure.
#include "comm/pair_opening.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "exec/route.h"
#include "fake/manual_clock.h"
#include "fake/note_session.h"

namespace hetccl::comm {
namespace {

using std::chrono::milliseconds;

constexpr int kRanks = 4;
constexpr int kMostSteps = 200'000;
constexpr uint64_t kNever = exec::Route::kNever;

// Probabilities of faults, in percent.
struct Troubles {
  unsigned lost_notes = 0, late_inits = 0, failed_inits = 0, failed_ids = 0, no_blocks = 0;
  bool one_leaves = false;
  bool abruptly = false;  // does not wait for openings under way
  bool breaks = false;    // breaks rank 0's control plane once it has sent a peer its numbers
};

class Schedule {
 public:
  explicit Schedule(uint64_t seed) : random_(seed) {}
  unsigned below(size_t n) { return static_cast<unsigned>(random_() % n); }
  bool happens(unsigned percent) { return below(100) < percent; }
  fake::ManualClock clock;

 private:
  std::mt19937_64 random_;
};

// A communicator that only knows the Meeting it belongs to.
class Met final : public ccl::Communicator {
 public:
  explicit Met(uint64_t of) : meeting(of) {}
  Status all_reduce(const void*, void*, size_t, DataType, const Reducer&, void*) override {
    return {};
  }
  Status reduce(std::span<const ccl::Shard>, DataType, const Reducer&, void*) override {
    return {};
  }
  Status broadcast(std::span<const ccl::Shard>, DataType, void*) override { return {}; }
  Status barrier(void*) override { return {}; }
  [[nodiscard]] Status async_error() const override { return {}; }
  void abort() override {}
  [[nodiscard]] ShmSource* shm_source() override { return nullptr; }
  const uint64_t meeting;
};

// The state that both ends of an id share in the library.
struct Meeting {
  enum Outcome { Made, Late, Failed };
  uint64_t number = 0;
  bool come[2] = {};
  int blocks[2] = {};
  Outcome outcome[2] = {Made, Made};
};

class Pending final : public ccl::PendingPair {
 public:
  Pending(std::shared_ptr<Meeting> meeting, int side, TimePoint deadline)
      : meeting_(std::move(meeting)), side_(side), deadline_(deadline) {
    meeting_->come[side] = true;
  }
  std::optional<Made> poll(TimePoint now, TimePoint& again) override {
    if (meeting_->outcome[side_] == Meeting::Failed)
      return error(ErrorCode::SystemError, "no memory");
    if (meeting_->come[0] && meeting_->come[1] && meeting_->outcome[1 - side_] != Meeting::Failed) {
      CHECK(meeting_->blocks[0] == meeting_->blocks[1]);
      if (meeting_->outcome[side_] == Meeting::Late) return std::unique_ptr<ccl::Communicator>();
      return std::unique_ptr<ccl::Communicator>(std::make_unique<Met>(meeting_->number));
    }
    if (now >= deadline_) return error(ErrorCode::Timeout, "the other did not come");
    again = std::min(again, deadline_);
    return std::nullopt;
  }

 private:
  const std::shared_ptr<Meeting> meeting_;
  const int side_;
  const TimePoint deadline_;
};

class World;

// The control plane of one rank.
class Session final : public fake::NoteSession {
 public:
  Session(World& world, int rank) : NoteSession(rank, kRanks), world_(world) {}
  Status send_note(int to, std::vector<uint8_t> note) override;

 private:
  World& world_;
};

// Acts as comm::Pairs does, but the schedule replaces its thread.
class Rank final : public PairOpening::Owner {
 public:
  struct Direction {
    explicit Direction(const Clock& clock) : route(clock) {}
    exec::Route route;
    std::vector<bool> by_library;  // for each message so far
  };
  struct Peer {
    explicit Peer(const Clock& clock) : sends(clock), receives(clock) {}
    Direction sends, receives;
    std::unique_ptr<PairOpening> opening;
    bool meets = false, ended = false, held = false, disagrees = false;
    PairOpening::Numbers first{kNever, kNever};
    std::vector<uint64_t> meetings;  // of the communicators that carry messages
  };

  Rank(World& world, int self)
      : number(self),
        world_(world),
        session_(world, self),
        mail(session_, [this] { rung = true; }) {}
  void meet(int peer, bool with_blocks);
  void advance();
  void send_or_receive(int peer, bool send);
  [[nodiscard]] bool under_way() const {
    return std::any_of(peers.begin(), peers.end(), [](const auto& one) {
      return one.second.opening != nullptr && one.second.opening->under_way();
    });
  }

  // Returns whether calls of messages with some peer wait for an agreement.
  [[nodiscard]] bool holds() const {
    return std::any_of(peers.begin(), peers.end(), [](const auto& one) { return one.second.held; });
  }

  Result<ccl::UniqueId> make_id() override;
  Result<std::unique_ptr<ccl::PendingPair>> begin_pair(const ccl::PairSeat& seat) override;
  PairOpening::Numbers propose(int peer) override {
    Peer& one = peers.at(peer);
    one.held = true;
    return {one.sends.route.propose(), one.receives.route.propose()};
  }
  void carry(PairOpening& opening, const PairOpening::Numbers& first) override {
    for (auto& one : opening.communicators())
      peers.at(opening.peer()).meetings.push_back(static_cast<Met&>(*one).meeting);
    settle(opening.peer(), first);
  }
  void refuse(int peer, const Status& why) override {
    CHECK_FALSE(why.ok());
    settle(peer, {kNever, kNever});
  }
  void disagree(int peer, const Status&) override { peers.at(peer).disagrees = true; }
  void drop(std::unique_ptr<ccl::Communicator> communicator) override {
    CHECK(communicator != nullptr);
  }
  Status cancelled() override { return cancel; }
  bool stops() override { return leaves; }
  bool has_left(int peer) override { return peers_left[static_cast<size_t>(peer)]; }
  void log(const std::string&) override {}

  const int number;

 private:
  void settle(int peer, const PairOpening::Numbers& first) {
    Peer& one = peers.at(peer);
    one.held = false;
    one.ended = true;
    one.first = first;
    one.sends.route.settle(first.sent);
    one.receives.route.settle(first.received);
  }
  World& world_;
  Session session_;

 public:
  Mail mail;
  PairBudget budget;
  std::map<int, Peer> peers;
  bool rung = false, leaves = false, gone = false;
  Status cancel;
  std::array<bool, kRanks> peers_left{};
  TimePoint again = TimePoint::max();
};

class World {
 public:
  World(uint64_t seed, const Troubles& may_happen) : schedule(seed), troubles(may_happen) {
    for (int r = 0; r < kRanks; ++r) ranks.push_back(std::make_unique<Rank>(*this, r));
    for (const auto& rank : ranks)
      for (int peer = 0; peer < kRanks; ++peer)
        if (peer != rank->number) rank->peers.try_emplace(peer, schedule.clock);
    leaver_ = troubles.one_leaves ? static_cast<int>(schedule.below(kRanks)) : -1;
  }

  // Runs until every pair has ended, or an end doubts the agreement. Returns false if they never
  // do.
  bool run() {
    for (int step = 0; step < kMostSteps; ++step) {
      if (all_ended() || disagreements() > 0) return true;
      Rank& rank = *ranks[schedule.below(ranks.size())];
      const int peer = (rank.number + 1 + static_cast<int>(schedule.below(kRanks - 1))) % kRanks;
      switch (schedule.below(8)) {
        case 0:
          if (!rank.gone && !rank.leaves) rank.meet(peer, !schedule.happens(troubles.no_blocks));
          break;
        case 1:
          if (!rank.gone && !rank.leaves) rank.send_or_receive(peer, schedule.happens(50));
          break;
        case 2:
          if (rank.number == leaver_) leave(rank);
          break;
        case 3:
          move_clock();
          break;
        case 4:
        case 5:
          deliver();
          break;
        default:
          if (!rank.gone && (rank.rung || schedule.clock.now() >= rank.again)) rank.advance();
      }
    }
    return false;
  }

  void check() const {
    for (const auto& rank : ranks) {
      for (const auto& [number, mine] : rank->peers) {
        const Rank::Peer& theirs = ranks[static_cast<size_t>(number)]->peers.at(rank->number);
        CAPTURE(rank->number);
        CAPTURE(number);
        CHECK_FALSE(mine.disagrees);
        const size_t both =
            std::min(mine.sends.by_library.size(), theirs.receives.by_library.size());
        CHECK(mine.meetings.size() == (mine.first.sent == kNever ? 0 : 2));
        const bool gone = rank->gone || ranks[static_cast<size_t>(number)]->gone;
        if (gone && troubles.abruptly) continue;
        for (size_t i = 0; i < both; ++i)
          CHECK(mine.sends.by_library[i] == theirs.receives.by_library[i]);
        if (gone) continue;  // it acts on no agreement any more
        CHECK(mine.first.sent == theirs.first.received);
        CHECK(mine.meetings == theirs.meetings);
      }
    }
  }
  [[nodiscard]] size_t disagreements() const {
    size_t n = 0;
    for (const auto& rank : ranks)
      for (const auto& [number, one] : rank->peers) n += one.disagrees ? 1 : 0;
    return n;
  }
  // Returns the number of pairs whose messages the library carries.
  [[nodiscard]] size_t carried() const {
    size_t n = 0;
    for (const auto& rank : ranks)
      for (const auto& [number, one] : rank->peers) n += one.first.sent != kNever ? 1 : 0;
    return n;
  }

  struct Note {
    int from, to;
    std::vector<uint8_t> bytes;  // empty: it has left
  };
  Schedule schedule;
  const Troubles troubles;
  std::vector<Note> notes;
  std::map<uint64_t, std::shared_ptr<Meeting>> meetings;
  std::vector<std::unique_ptr<Rank>> ranks;

 private:
  [[nodiscard]] bool all_ended() const {
    return std::all_of(ranks.begin(), ranks.end(), [](const auto& rank) {
      return rank->gone || std::all_of(rank->peers.begin(), rank->peers.end(),
                                       [](const auto& one) { return one.second.ended; });
    });
  }
  void deliver() {
    if (notes.empty()) return;
    const size_t i = schedule.below(notes.size());
    const Note note = std::move(notes[i]);
    notes.erase(notes.begin() + static_cast<ptrdiff_t>(i));
    Rank& to = *ranks[static_cast<size_t>(note.to)];
    if (to.gone) return;
    if (!note.bytes.empty()) return to.mail.on_note(note.from, note.bytes);
    to.peers_left[static_cast<size_t>(note.from)] = true;
    to.mail.on_left(note.from);
  }
  // Moves the clock a little, or to the next event if no rank has anything to do before.
  void move_clock() {
    TimePoint next = schedule.clock.now() + milliseconds(schedule.below(30));
    TimePoint due = TimePoint::max();
    bool idle = notes.empty();
    for (const auto& rank : ranks) {
      if (rank->gone) continue;
      due = std::min(due, rank->again);
      idle = idle && !rank->rung;
    }
    if (idle && due != TimePoint::max()) next = std::max(next, due);
    schedule.clock.time = next;
  }
  // Returns whether the other ends have begun all messages of `rank`, so that these can complete.
  [[nodiscard]] bool is_drained(const Rank& rank) const {
    return std::all_of(rank.peers.begin(), rank.peers.end(), [&](const auto& one) {
      const Rank::Peer& theirs = ranks[static_cast<size_t>(one.first)]->peers.at(rank.number);
      const Rank::Peer& mine = one.second;
      return mine.sends.by_library.size() <= theirs.receives.by_library.size() &&
             mine.receives.by_library.size() <= theirs.sends.by_library.size();
    });
  }
  // Does what Dispatch::finish, Pairs::stop and Session::leave do.
  void leave(Rank& rank) {
    if (rank.gone || (!rank.leaves && !schedule.happens(5))) return;
    rank.leaves = rank.rung = true;
    if (!troubles.abruptly && (rank.under_way() || !is_drained(rank))) return;
    rank.cancel = error(ErrorCode::Aborted, "the communicator was destroyed");
    rank.advance();
    rank.gone = true;
    for (int to = 0; to < kRanks; ++to)
      if (to != rank.number) notes.push_back({rank.number, to, {}});
  }
  int leaver_ = -1;
};

Status Session::send_note(int to, std::vector<uint8_t> note) {
  if (world_.ranks[static_cast<size_t>(rank())]->gone)
    return error(ErrorCode::InvalidUsage, "this rank has left");
  if (world_.troubles.breaks && rank() == 0 && world_.ranks[0]->holds())
    return error(ErrorCode::SystemError, "the control plane is broken");
  unsigned times = 1;
  if (world_.schedule.happens(world_.troubles.lost_notes)) times = 2 * world_.schedule.below(2);
  for (; times > 0; --times) world_.notes.push_back({rank(), to, note});
  return {};
}

void Rank::meet(int peer, bool with_blocks) {
  Peer& one = peers.at(peer);
  if (std::exchange(one.meets, true)) return;
  auto share = budget.take(132);
  one.opening = std::make_unique<PairOpening>(*this, mail, number, peer,
                                              with_blocks ? std::move(share) : PairBudget::Share());
  rung = true;
}

void Rank::advance() {
  rung = false;
  again = TimePoint::max();
  for (auto& [peer, one] : peers) {
    if (one.opening != nullptr && one.opening->advance(world_.schedule.clock.now(), again))
      one.opening.reset();
  }
}

void Rank::send_or_receive(int peer, bool send) {
  Peer& one = peers.at(peer);
  if (one.held) return;  // the call would wait
  Direction& direction = send ? one.sends : one.receives;
  const auto place = direction.route.take(TimePoint::max(), [] { return false; });
  REQUIRE(place.ok());
  direction.by_library.push_back(place.value().by_library);
}

Result<ccl::UniqueId> Rank::make_id() {
  if (world_.schedule.happens(world_.troubles.failed_ids))
    return error(ErrorCode::SystemError, "no id");
  const uint64_t key = world_.meetings.size() + 1;
  auto meeting = std::make_shared<Meeting>();
  meeting->number = key;
  for (auto& outcome : meeting->outcome) {
    if (world_.schedule.happens(world_.troubles.late_inits)) outcome = Meeting::Late;
    if (world_.schedule.happens(world_.troubles.failed_inits)) outcome = Meeting::Failed;
  }
  world_.meetings[key] = std::move(meeting);
  ccl::UniqueId id;
  std::memcpy(id.bytes, &key, sizeof key);
  return id;
}

Result<std::unique_ptr<ccl::PendingPair>> Rank::begin_pair(const ccl::PairSeat& seat) {
  uint64_t key = 0;
  std::memcpy(&key, seat.id.bytes, sizeof key);
  const auto& meeting = world_.meetings.at(key);
  meeting->blocks[seat.rank] = seat.blocks;
  for (const auto& other : world_.ranks) other->rung = true;  // a library has completed something
  return std::unique_ptr<ccl::PendingPair>(std::make_unique<Pending>(
      meeting, seat.rank, world_.schedule.clock.now() + std::chrono::seconds(30)));
}

// For each seed, all pairs end in agreement. Returns how many the library carried.
size_t run_all(const Troubles& troubles) {
  size_t carried = 0;
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    CAPTURE(seed);
    World world(seed, troubles);
    REQUIRE_MESSAGE(world.run(), "some pairs never end");
    world.check();
    carried += world.carried();
  }
  return carried;
}

constexpr size_t kAll = 100 * kRanks * (kRanks - 1);

TEST_CASE("pairs that ranks open in any order are carried by the library from agreed numbers on") {
  CHECK(run_all({}) == kAll);
}

TEST_CASE("pairs come to agree whatever notes are lost, come twice or overtake each other") {
  CHECK(run_all({.lost_notes = 40}) == kAll);
}

TEST_CASE("where libraries are late or fail, both ends of a pair go by it, or neither does") {
  const size_t late = run_all({.lost_notes = 20, .late_inits = 30});
  CHECK(late > kAll / 2);
  const size_t failed = run_all(
      {.lost_notes = 20, .late_inits = 20, .failed_inits = 10, .failed_ids = 10, .no_blocks = 10});
  CHECK(failed > kAll / 10);
  CHECK(failed < late);
}

TEST_CASE("a rank that leaves agrees with all others, or has no pair with them") {
  CHECK(run_all({.lost_notes = 20, .late_inits = 10, .failed_inits = 5, .one_leaves = true}) >
        kAll / 10);
}

TEST_CASE("a rank that leaves at once holds up nobody") {
  CHECK(run_all({.lost_notes = 20, .late_inits = 10, .one_leaves = true, .abruptly = true}) >
        kAll / 10);
}

TEST_CASE("a rank that has proposed numbers and cannot hear the peer's reports it, and goes on") {
  size_t reported = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    CAPTURE(seed);
    World world(seed, {.breaks = true});
    CHECK(world.run());
    if (world.disagreements() == 0) continue;  // the peers had sent theirs before
    ++reported;
    for (const auto& [number, one] : world.ranks[0]->peers) {
      if (!one.disagrees) continue;
      CHECK(one.ended);
      CHECK(one.first.sent == kNever);
    }
    // The report fails the communicator, which ends all waits.
    for (const auto& rank : world.ranks) {
      rank->cancel = error(ErrorCode::Aborted, "the communicator has failed");
      rank->advance();
      for (const auto& [number, one] : rank->peers) CHECK(one.opening == nullptr);
    }
  }
  CHECK(reported > 0);
}

}  // namespace
}  // namespace hetccl::comm
