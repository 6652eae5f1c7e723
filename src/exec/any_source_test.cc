// Checks any-source receives against a plain list of posted receives.
#include "exec/any_source.h"

#include <doctest/doctest.h>

#include <deque>
#include <list>
#include <random>

#include "exec/testing.h"

namespace hetccl::exec {
namespace {

constexpr int kPeers = 3;

/// Posts receives and delivers messages in any order, and matches them. The expected match of each
/// message is found by a linear search through all posted receives.
class Game {
 public:
  explicit Game(uint64_t seed) : random_(seed) {}

  void play() {
    for (int i = 0; i < 60; ++i) {
      random_() % 2 == 0 ? post() : come();
      if (random_() % 3 == 0) match();
    }
    match();
  }
  [[nodiscard]] int matched() const { return matched_; }

 private:
  struct Posted {
    Posted(device::Device& device, int of) : op(device), peer(of) {}
    Operation op;
    int peer;  // or kAnyRank
    bool done = false;
  };
  uint32_t tag() { return static_cast<uint32_t>(random_() % 2); }

  void post() {
    const int peer = random_() % 2 == 0 ? kAnyRank : static_cast<int>(random_() % kPeers);
    Operation& op = posted_.emplace_back(device_, peer).op;
    code_.syncs.resize(2);
    REQUIRE(op.prepare({1, 1, &code_}, {}).ok());
    op.started().word.store(random_() % 8 == 0 ? 0 : 1);
    op.posting = next_posting_++;
    op.message = {.peer = peer, .tag = tag()};
    if (peer == kAnyRank) table_.post(op);
  }
  void come() { coming_[random_() % kPeers].push_back(tag()); }

  [[nodiscard]] Posted* next_named(int peer) {
    for (Posted& one : posted_)
      if (one.peer == peer && !one.done) return &one;
    return nullptr;
  }
  // Returns the receive that must get the next message of `peer`: the first posted of all that
  // match. A receive that names the rank gets it even if its stream has not reached it yet.
  Posted* wanted(int peer) {
    for (Posted& one : posted_) {
      const bool begun = one.op.started().reached(1);
      if (&one == next_named(peer)) return begun ? &one : nullptr;
      const bool any = one.peer == kAnyRank && one.op.message.tag == coming_[peer].front();
      if (any && begun && !one.done) return &one;
    }
    return nullptr;
  }
  void match() {
    for (int peer = 0; peer < kPeers; ++peer) {
      while (!coming_[peer].empty() && match_next(peer)) ++matched_;
    }
  }
  // Does as the wire: tries the table first, then the receive that names the rank, unless it must
  // wait.
  bool match_next(int peer) {
    transport::MessageInfo incoming;
    incoming.step = coming_[peer].front();
    Posted* const named = next_named(peer);
    Posted* const expected = wanted(peer);
    const Operation* got = table_.take(incoming, named == nullptr ? nullptr : &named->op);
    if (got == nullptr && named != nullptr && named->op.started().reached(1) &&
        !table_.hold(named->op, incoming))
      got = &named->op;
    CHECK(got == (expected == nullptr ? nullptr : &expected->op));
    if (got == nullptr || expected == nullptr) return false;
    expected->done = true;
    coming_[peer].pop_front();
    return true;
  }

  std::mt19937_64 random_;
  testing::QueueDevice device_;
  lower::Code code_;
  std::list<Posted> posted_;
  std::deque<uint32_t> coming_[kPeers];
  AnySource table_;
  uint64_t next_posting_ = 0;
  int matched_ = 0;
};

}  // namespace

TEST_CASE("a message goes to the first receive posted that can take it") {
  int matched = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    Game game(seed);
    game.play();
    matched += game.matched();
  }
  CHECK(matched > 3000);
}

TEST_CASE("a receive that names a rank waits while it is not known what comes for an earlier one") {
  testing::QueueDevice device;
  lower::Code code;
  code.syncs.resize(2);
  Operation any(device), named(device);
  for (Operation* op : {&any, &named}) {
    REQUIRE(op->prepare({1, 1, &code}, {}).ok());
    op->started().word.store(1);
  }
  named.posting = 1;
  AnySource table;
  table.post(any);
  CHECK(table.hold(named, std::nullopt));
  transport::MessageInfo incoming;
  incoming.step = 5;
  CHECK_FALSE(table.hold(named, incoming));
  any.given_up = true;
  CHECK_FALSE(table.hold(named, std::nullopt));
  CHECK(table.take({}, &named) == nullptr);
  table.clear();
  CHECK(table.empty());
}

}  // namespace hetccl::exec
