// Floods the coordinator's port with connections and impostors: a join succeeds, hardly later than
// without them.
#include <doctest/doctest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "bootstrap/coordinator.h"
#include "bootstrap/dial.h"
#include "bootstrap/testing.h"
#include "bootstrap/unique_id.h"
#include "fake/strangers.h"

namespace hetccl::bootstrap {
namespace {

using namespace testing;
using fake::Flood;
using fake::Impostor;
using std::chrono::milliseconds;

TimePoint soon() {
  return steady_clock().now() + kHang;
}

// Returns half-open handshakes of all kinds: silence, half a hello, and true (recorded) hellos for
// this communicator and for none.
Flood::Options half_open(const Invitation& invitation, uint32_t sources) {
  const fake::Words hello = fake::true_hello({kPurpose, 0, invitation.communicator, 1});
  const fake::Words half(hello.begin(), hello.begin() + 30);
  const fake::Words other = fake::true_hello({kPurpose, 0, invitation.communicator ^ 1, 1});
  return {1'000, sources, {hello, {}, hello, half, hello, other}};
}

// Returns the time in which four ranks of two processes join and exchange.
milliseconds time_of_join(Service& one, Service& two) {
  const auto id = one.unique_id();
  REQUIRE(id.ok());
  const TimePoint begin = steady_clock().now();
  std::vector<FailureBox> boxes(4);
  const Sessions sessions = join_all({&one, &two}, id.value(), 4, &boxes);
  const auto took = std::chrono::ceil<milliseconds>(steady_clock().now() - begin);
  REQUIRE(complete(sessions));
  std::vector<int> right(4);
  parallel(4, [&](int rank) {
    right[static_cast<size_t>(rank)] = sessions[static_cast<size_t>(rank)]->barrier(kHangMs).ok();
  });
  CHECK(right == std::vector<int>(4, 1));
  for (FailureBox& box : boxes) CHECK(box.count() == 0);
  return took;
}

milliseconds median_of_three(Service& one, Service& two) {
  std::array<milliseconds, 3> times{};
  for (milliseconds& time : times) time = time_of_join(one, two);
  std::sort(times.begin(), times.end());
  return times[1];
}

// Sends `total` strangers as fast as possible, at most 1,000 per second, while a job runs
// undisturbed.
void check_flood(uint32_t sources, int total) {
  const auto one = service(), two = service();
  const auto id = one->unique_id();
  std::vector<FailureBox> boxes(2);
  const Sessions running = join_all({one.get(), two.get()}, id.value(), 2, &boxes);
  REQUIRE(complete(running));
  const Invitation invitation = decode(id.value()).value();
  const milliseconds before = median_of_three(*one, *two);
  {
    const Flood flood(invitation.addresses.front(), half_open(invitation, sources));
    const TimePoint begin = steady_clock().now();
    while (flood.count() < 700)
      std::this_thread::sleep_for(milliseconds(5));  // its places are full
    std::vector<milliseconds> times;
    do {
      times.push_back(median_of_three(*one, *two));
      std::this_thread::sleep_for(milliseconds(50));
    } while (flood.count() < total);
    const double took = std::chrono::duration<double>(steady_clock().now() - begin).count();
    const milliseconds worst = *std::max_element(times.begin(), times.end());
    MESSAGE(flood.count() << " strangers in " << took << " s from " << sources
                          << " addresses; a join takes " << before.count() << " ms without them, "
                          << times.front().count() << " ms and at worst " << worst.count()
                          << " ms with them (medians of 3, " << times.size() << " times)");
    CHECK(flood.count() >= total);
    CHECK(worst - before < kHang / 2);  // nobody waits for a stranger's timeout
  }
  parallel(2, [&](int rank) { CHECK(running[static_cast<size_t>(rank)]->barrier(kHangMs).ok()); });
  for (FailureBox& box : boxes) CHECK(box.count() == 0);
}

TEST_CASE("a flood of half-open handshakes holds up no join and ends no job") {
  check_flood(1, 1'500);
  check_flood(10'000, 1'500);
}

TEST_CASE("the same with 20,000, from one address and from many" * doctest::skip()) {
  check_flood(1, 20'000);
  check_flood(10'000, 20'000);
}

// Waits for `pause` before each step, as over a slow network or on a busy machine.
net::HandshakeState prove_slowly(const Invitation& invitation, milliseconds pause) {
  auto fd = net::connect(invitation.addresses, soon());
  REQUIRE(fd.ok());
  net::DialHandshake handshake({kPurpose, 0, invitation.communicator, 1}, {invitation.secret},
                               nullptr);
  auto state = net::HandshakeState::InProgress;
  const TimePoint limit = soon();
  while (state == net::HandshakeState::InProgress && steady_clock().now() < limit) {
    std::this_thread::sleep_for(pause);
    state = handshake.advance(fd->get());
  }
  return state;
}

// Dials again, as ranks do, because a machine that stalls for half a second drops this one, too.
bool proves_slowly(const Invitation& invitation, milliseconds pause = milliseconds(30)) {
  for (const TimePoint limit = soon(); steady_clock().now() < limit;) {
    if (prove_slowly(invitation, pause) == net::HandshakeState::Done) return true;
  }
  return false;
}

TEST_CASE("a rank that takes longer for a handshake than the liveness time proves itself") {
  const auto one = service(kLeastLivenessMs);
  const auto id = one->unique_id();
  CHECK(proves_slowly(decode(id.value()).value(), milliseconds(2 * kLeastLivenessMs)));
}

TEST_CASE("a rank that takes a moment for each step proves itself in a flood of any kind") {
  const auto one = service();
  const auto id = one->unique_id();
  const Invitation invitation = decode(id.value()).value();
  const fake::Words hello = fake::true_hello({kPurpose, 0, invitation.communicator, 1});
  const fake::Words silence;
  for (const uint32_t sources : {1U, 10'000U}) {
    for (const auto& says : {hello, silence}) {
      CAPTURE(sources);
      CAPTURE(says.size());
      const Flood flood(invitation.addresses.front(), {1'000, sources, {says}});
      while (flood.count() < 700) std::this_thread::sleep_for(milliseconds(5));
      CHECK(proves_slowly(invitation));
    }
  }
}

TEST_CASE("strangers who answer for the coordinator do not end a join") {
  const auto one = service(), two = service();
  const auto id = one->unique_id();
  Invitation invitation = decode(id.value()).value();
  const Impostor impostor(invitation.addresses.front(), fake::wrong_answers());
  invitation.addresses = {impostor.address()};
  const auto joined = two->join(encode(invitation), options(0, 1));
  CHECK_MESSAGE(joined.ok(), joined.status().message());
  CHECK(impostor.answered() == fake::wrong_answers().size());
}

// Opens `n` connections, writes a byte to `report`, and holds them.
[[noreturn]] void hold_connections(const net::SocketAddress& address, int n, int report) {
  alarm(fake::kAlarm);
  std::vector<int> held;
  for (int i = 0; i < n; ++i) {
    const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
    (void)::connect(fd, reinterpret_cast<const sockaddr*>(&address.storage), address.length());
    held.push_back(fd);
  }
  (void)!::write(report, "x", 1);
  for (;;) ::pause();
}

TEST_CASE("strangers who take all descriptors do not keep a rank out") {
  const auto one = service(), two = service();
  const auto id = one->unique_id();
  const Invitation invitation = decode(id.value()).value();
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const pid_t strangers = ::fork();
  if (strangers == 0) hold_connections(invitation.addresses.front(), 200, ends[1]);
  const int highest = ::dup(0);  // the lowest free descriptor comes first
  ::close(highest);
  rlimit before{};
  ::getrlimit(RLIMIT_NOFILE, &before);
  rlimit scarce = before;
  scarce.rlim_cur = static_cast<rlim_t>(highest) + 60;
  ::setrlimit(RLIMIT_NOFILE, &scarce);
  char held = 0;
  CHECK(::read(ends[0], &held, 1) == 1);
  std::this_thread::sleep_for(milliseconds(300));
  const TimePoint begin = steady_clock().now();
  const auto joined = one->join(id.value(), options(0, 1));
  const auto took = steady_clock().now() - begin;
  ::setrlimit(RLIMIT_NOFILE, &before);
  ::kill(strangers, SIGKILL);
  ::waitpid(strangers, nullptr, 0);
  ::close(ends[0]);
  ::close(ends[1]);
  CHECK_MESSAGE(joined.ok(), joined.status().message());
  CHECK(took < kHang / 2);
}

}  // namespace
}  // namespace hetccl::bootstrap
