#include "comm/tuning.h"

#include <doctest/doctest.h>

#include <thread>

#include "fake/note_session.h"

namespace hetccl::comm {
namespace {

// Rank 1's session, whose notes get lost.
class LostSession final : public fake::NoteSession {
 public:
  LostSession() : NoteSession(1, 2) {}
  Status send_note(int /*to*/, std::vector<uint8_t> /*note*/) override {
    ++told;
    return {};
  }
};

TEST_CASE("a rank that waits for rank 0's verdict goes on without one once rank 0 has left") {
  std::atomic<bool> ended{false};
  LostSession session;
  const auto engine = std::move(progress::Engine::create(steady_clock())).value();
  Tuning tuning(session, *engine, {.searches = true, .failed = [&] { return ended.load(); }});
  const tune::Key key{Collective::AllReduce, 12, 4, -1};
  const tune::Setting setting{"exchange", {.slice_bytes = 4096, .depth = 3}, {}};
  const tune::Proposal proposal{1, 0, {{key, setting, 0}}};
  tuning.on_note(0, tune::encode(proposal));
  REQUIRE(session.told == 1);  // its vote: from here on it is in doubt
  std::atomic<bool> used{false};
  std::thread launch([&] {
    const auto use =
        tuning.use(key, 4096, 0, false, steady_clock().now(), tune::Conductor::SpaceMaker());
    CHECK_FALSE(use.setting);
    used = true;
  });
  for (int i = 0; session.told < 3 && i < 60'000; ++i)  // it asks, and asks again
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  CHECK(session.told >= 3);
  CHECK_FALSE(used);
  tuning.on_left(1);
  tuning.on_left(0);
  for (int i = 0; !used && i < 60'000; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  CHECK(used);
  ended = true;
  launch.join();
}

}  // namespace
}  // namespace hetccl::comm
