// Breaks each rule of a ring once.
#include "verify/ring_check.h"

#include <doctest/doctest.h>

#include <memory>

namespace hetccl::verify {
namespace {

constexpr size_t kRing = 4096, kBytes = 1000;
constexpr RingMessage kFirst{0, 0}, kSecond{0, 1};
// Completions of the threads of both ends: thread 1 is the writer's, 2 the wire's, 3 the reader's.
constexpr Use kReserved{1, 1, 10}, kWritten{1, 2, 11}, kReceived{2, 1, 20}, kRead{3, 1, 30};

Clock knowing(const Use& use) {
  Clock clock;
  clock.set(use.thread, use.count);
  return clock;
}

std::string text(const char* fault) {
  return fault == nullptr ? "none" : fault;
}

// A ring whose first message has reached stage `last`.
enum class Stage { Reserved, Written, Sent, Received, Located, Read, Acknowledged };
std::unique_ptr<RingCheck> at(Stage last) {
  auto ring = std::make_unique<RingCheck>(kRing);
  ring->reserve(kFirst, kBytes, kReserved);
  if (last >= Stage::Written) {
    CHECK(text(ring->write(kFirst, knowing(kReserved), kWritten)) == "none");
  }
  if (last >= Stage::Sent) CHECK(text(ring->send(kFirst, knowing(kWritten))) == "none");
  if (last >= Stage::Received) CHECK(text(ring->receive(kFirst, kReceived)) == "none");
  if (last >= Stage::Located) ring->locate(kFirst);
  if (last >= Stage::Read) {
    CHECK(text(ring->read(kFirst, knowing(kReceived), kRead)) == "none");
  }
  if (last >= Stage::Acknowledged) {
    CHECK(text(ring->acknowledge(kFirst, knowing(kRead))) == "none");
  }
  return ring;
}

}  // namespace

TEST_CASE("a message that keeps all rules") {
  const auto ring = at(Stage::Acknowledged);
  CHECK(ring->credit() == 1);
  CHECK(text(ring->check_end()) == "none");
  CHECK(text(RingCheck(kRing).check_end()) == "none");
}

TEST_CASE("a place is taken before it is written") {
  RingCheck ring(kRing);
  CHECK(text(ring.write(kFirst, {}, kWritten)) == "writes into a ring where it has no place");
  ring.reserve(kFirst, kBytes, kReserved);
  // By an instruction that may not know of the place.
  CHECK(text(ring.write(kFirst, {}, kWritten)) == "writes into a ring where it has no place");
  CHECK(text(ring.write(kSecond, knowing(kReserved), kWritten)) ==
        "writes into a ring where it has no place");
  CHECK(text(ring.write(kFirst, knowing(kReserved), kWritten)) == "none");
}

TEST_CASE("a message is written once") {
  auto ring = at(Stage::Written);
  CHECK(text(ring->write(kFirst, knowing(kWritten), {1, 3, 12})) == "writes a message twice");
}

TEST_CASE("a header leaves once its message is written") {
  auto ring = at(Stage::Reserved);
  const std::string fault = "announces a message that may not be written yet: nothing orders them";
  CHECK(text(ring->send(kFirst, knowing(kReserved))) == fault);
  CHECK(text(ring->send(kSecond, knowing(kReserved))) == fault);
  ring = at(Stage::Written);
  CHECK(text(ring->send(kFirst, knowing(kReserved))) == fault);
  CHECK(text(ring->send(kFirst, knowing(kWritten))) == "none");
}

TEST_CASE("what arrives has a place") {
  auto ring = at(Stage::Sent);
  CHECK(text(ring->receive(kSecond, kReceived)) == "receives a message that has no place");
}

TEST_CASE("a message is read once it has arrived") {
  auto ring = at(Stage::Sent);
  ring->locate(kFirst);
  const std::string fault = "reads a message that may not have arrived: nothing orders them";
  CHECK(text(ring->read(kFirst, knowing(kReceived), kRead)) == fault);
  ring = at(Stage::Located);
  CHECK(text(ring->read(kFirst, {}, kRead)) == fault);
  CHECK(text(ring->read(kSecond, knowing(kReceived), kRead)) == fault);
  CHECK(text(ring->read(kFirst, knowing(kReceived), kRead)) == "none");
}

TEST_CASE("the reader finds places in the order in which the writer took them") {
  auto ring = at(Stage::Received);
  CHECK(text(ring->read(kFirst, knowing(kReceived), kRead)) == "reads another message's place");
  ring->locate(kSecond);
  CHECK(text(ring->read(kFirst, knowing(kReceived), kRead)) == "reads another message's place");
}

TEST_CASE("what is acknowledged is not read again") {
  auto ring = at(Stage::Acknowledged);
  CHECK(text(ring->read(kFirst, knowing(kReceived), kRead)) ==
        "reads a message that it has acknowledged");
}

TEST_CASE("messages are acknowledged in the order of their places") {
  auto ring = at(Stage::Read);
  CHECK(text(ring->acknowledge(kSecond, knowing(kRead))) == "acknowledges another message");
  CHECK(text(ring->acknowledge({1, 0}, knowing(kRead))) == "acknowledges another message");
  ring = at(Stage::Acknowledged);
  CHECK(text(ring->acknowledge(kFirst, knowing(kRead))) == "acknowledges another message");
}

TEST_CASE("a message is acknowledged after all its reads, of which there are some") {
  auto ring = at(Stage::Located);
  CHECK(text(ring->acknowledge(kFirst, {})) == "acknowledges a message that nobody has read");
  ring = at(Stage::Read);
  const std::string fault = "acknowledges a message that is still read: nothing orders them";
  CHECK(text(ring->acknowledge(kFirst, knowing(kReceived))) == fault);
  const Use again{4, 1, 31};
  CHECK(text(ring->read(kFirst, knowing(kReceived), again)) == "none");
  CHECK(text(ring->acknowledge(kFirst, knowing(kRead))) == fault);
  Clock both = knowing(kRead);
  both.join(knowing(again));
  CHECK(text(ring->acknowledge(kFirst, both)) == "none");
}

TEST_CASE("at the end all messages are acknowledged, and no place was found in vain") {
  CHECK(text(at(Stage::Read)->check_end()) == "leaves messages unacknowledged");
  auto ring = at(Stage::Acknowledged);
  ring->locate(kSecond);
  CHECK(text(ring->check_end()) == "leaves messages whose place is not found");
}

TEST_CASE("the writer waits for credit once the ring is full") {
  RingCheck ring(kRing);
  // 1000 bytes take 1024: four messages fit, and the fifth reuses the place of the first.
  for (uint16_t i = 0; i < 4; ++i) CHECK(ring.reserve({0, i}, kBytes, kReserved) == 0);
  CHECK(ring.reserve({0, 4}, kBytes, kReserved) == 1);
  CHECK(ring.credit() == 0);
  CHECK(text(ring.write(kFirst, knowing(kReserved), kWritten)) == "none");
  CHECK(text(ring.receive(kFirst, kReceived)) == "none");
  ring.locate(kFirst);
  CHECK(text(ring.read(kFirst, knowing(kReceived), kRead)) == "none");
  CHECK(text(ring.acknowledge(kFirst, knowing(kRead))) == "none");
  CHECK(ring.credit() == 1);
}

TEST_CASE("equal messages of later slices are others") {
  auto ring = at(Stage::Acknowledged);
  ring->values(kFirst) = {{5, 0}};
  const RingMessage later{1, 0};
  ring->reserve(later, kBytes, {1, 3, 10});
  CHECK(ring->values(later).empty());
  CHECK(ring->values(kFirst).size() == 1);
  CHECK(text(ring->write(later, knowing({1, 3, 10}), {1, 4, 11})) == "none");
}

}  // namespace hetccl::verify
