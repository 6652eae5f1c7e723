// Different calls in flight at once, over random topologies: two collectives, even and uneven ones,
// some with messages beside them. And calls in the smallest rings that they may have.
#include <doctest/doctest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <set>

#include "golden/random_call.h"

namespace hetccl::verify {
namespace {

constexpr uint64_t kCases = 2000;
#if defined(HETCCL_UNDER_ASAN)  // which slows the verifier down tenfold
constexpr uint64_t kInFlightOneIn = 60;
#else
constexpr uint64_t kInFlightOneIn = 6;
#endif

/// All clusters on one host, so that they share windows.
topology::Topology on_one_host(std::mt19937_64& random) {
  std::vector<topology::RankInfo> infos = test::random_topology(random).infos();
  for (topology::RankInfo& info : infos) {
    info.label = info.host + info.label;
    info.host = "one";
    info.window_bytes = 16 << 20;
  }
  return topology::Topology::build(std::move(infos)).value();
}

topology::Topology any_topology(std::mt19937_64& random) {
  return random() % 2 == 0 ? on_one_host(random) : test::random_topology(random);
}

/// Gives all calls of a communicator the same windows.
void share_windows(Options& options, const Options& first) {
  options.most_ring_bytes = first.most_ring_bytes;
  options.reaches = first.reaches;
}

/// Windows of any size, or so small that few messages fit; some transports reach devices' memory.
void draw_windows(std::mt19937_64& random, Options& options) {
  if (random() % 2 == 0) options.most_ring_bytes = lower::Ring::kGrain * (random() % 64);
  if (random() % 3 == 0)
    options.reaches = [](int rank, int peer) { return (rank + peer) % 2 == 0; };
}

class Draw {
 public:
  Draw(std::mt19937_64& random, const topology::Topology& topology)
      : random_(random), topology_(topology) {
    draw_windows(random, windows_);
  }

  Lowered collective() {
    const plan::Spec spec = test::random_spec(random_, topology_);
    Options options = test::random_options(random_);
    if (random_() % 2 == 0) test::draw_lengths(random_, spec, topology_, options);
    share_windows(options, windows_);
    return lower_all(spec, topology_, test::plan_all(spec, topology_), options).value();
  }
  Lowered message() {
    const int from = test::random_rank(random_, topology_);
    return message(from, test::random_rank(random_, topology_));
  }
  /// One in three of those that a cluster's library may carry goes by it: between its devices.
  Lowered message(int from, int to) {
    Options options = test::random_options(random_);
    share_windows(options, windows_);
    const auto& infos = topology_.infos();
    const bool devices = !infos[static_cast<size_t>(from)].host_access &&
                         !infos[static_cast<size_t>(to)].host_access;
    const bool together = from != to && topology_.cluster_of(from) == topology_.cluster_of(to);
    return lower_message(from, to, topology_, options, devices && together && random_() % 3 == 0)
        .value();
  }

 private:
  std::mt19937_64& random_;
  const topology::Topology& topology_;
  Options windows_;
};

std::string describe(const std::vector<Flight>& flights) {
  std::string text;
  for (const Flight& flight : flights) {
    const Problem& problem = flight.call->problem;
    text += std::string(name_of(problem.spec.collective)) + " of rank " +
            std::to_string(problem.spec.root) + " to " + std::to_string(problem.to) +
            (problem.by_library ? " by library, " : ", ");
  }
  return text;
}

MachineOptions random_machine(std::mt19937_64& random) {
  return {.in_place = random() % 2 == 0, .buffer_sets = static_cast<uint32_t>(1 + random() % 2)};
}

/// Two or three of two calls, and up to two messages beside them.
std::vector<Flight> random_flights(std::mt19937_64& random, const Lowered& first,
                                   const Lowered& second, const Lowered& message) {
  std::vector<Flight> flights = {{&first}, {random() % 4 == 0 ? &first : &second}};
  if (random() % 4 == 0) flights.push_back({&first});
  for (uint64_t messages = random() % 3; messages > 0; --messages) {
    // Anywhere, but in one place at both ends: their streams may be one queue of the hardware.
    const auto place = static_cast<std::ptrdiff_t>(random() % (flights.size() + 1));
    flights.insert(flights.begin() + place, {&message, 1});
  }
  return flights;
}

/// Calls `test(random, topology, draw)` for each case.
template <typename Test>
void for_each_case(const Test& test) {
  for (const uint64_t seed : fake::sampled_seeds(kCases, kInFlightOneIn)) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    const topology::Topology topology = any_topology(random);
    Draw draw(random, topology);
    test(random, topology, draw);
  }
}

TEST_CASE("different calls in flight, even and uneven") {
  for_each_case([](std::mt19937_64& random, const topology::Topology& topology, Draw& draw) {
    const Lowered first = draw.collective(), second = draw.collective(), message = draw.message();
    for (int i = 0; i < 2; ++i) {
      const std::vector<Flight> flights = random_flights(random, first, second, message);
      const Status status = check_together(flights, random_machine(random));
      REQUIRE_MESSAGE(status.ok(), describe(flights), status.message(), "\n", topology.to_json());
    }
  });
}

/// Messages of one call, the first or a later one. Each direction between two ranks is an executor
/// of its own, and goes over to the library, for good, behind the first call's other messages.
std::vector<Flight> random_group(std::mt19937_64& random, const std::vector<Lowered>& messages,
                                 uint32_t group) {
  std::map<std::pair<int, int>, uint32_t> executors;
  std::set<std::pair<int, int>> libraries;
  const auto ends_of = [](const Lowered& message) {
    return std::pair(message.problem.spec.root, message.problem.to);
  };
  for (const Lowered& message : messages) {
    executors.try_emplace(ends_of(message), static_cast<uint32_t>(1 + executors.size()));
    if (message.problem.by_library) libraries.insert(ends_of(message));
  }
  std::vector<Flight> flights;
  for (const bool by_library : {false, true}) {
    for (const Lowered& message : messages) {
      if (message.problem.by_library != by_library) continue;
      if (!by_library && group > 1 && libraries.contains(ends_of(message))) continue;
      flights.push_back({&message, executors.at(ends_of(message)), group});
      if (random() % 4 == 0) flights.push_back(flights.back());
    }
  }
  return flights;
}

/// Up to five messages, some of which answer others.
std::vector<Lowered> random_messages(std::mt19937_64& random, Draw& draw) {
  std::vector<Lowered> messages;
  for (uint64_t left = 1 + random() % 5; left > 0; --left) {
    const bool answers = !messages.empty() && random() % 2 == 0;
    messages.push_back(
        answers ? draw.message(messages.back().problem.to, messages.back().problem.spec.root)
                : draw.message());
  }
  return messages;
}

TEST_CASE("messages of one call, beside collectives") {
  for_each_case([](std::mt19937_64& random, const topology::Topology& topology, Draw& draw) {
    const Lowered collective = draw.collective();
    const std::vector<Lowered> messages = random_messages(random, draw);
    std::vector<Flight> flights;
    for (uint32_t group = 1; group <= 2; ++group) {
      if (random() % 2 == 0) flights.push_back({&collective});
      const std::vector<Flight> own = random_group(random, messages, group);
      flights.insert(flights.end(), own.begin(), own.end());
    }
    const Status status = check_together(flights, random_machine(random));
    REQUIRE_MESSAGE(status.ok(), describe(flights), status.message(), "\n", topology.to_json());
  });
}

TEST_CASE("what a launch of messages leaves out is missed") {
  uint64_t left_out = 0, missed = 0;
  for_each_case([&](std::mt19937_64& random, const topology::Topology&, Draw& draw) {
    const std::vector<Lowered> messages = random_messages(random, draw);
    const std::vector<Flight> flights = random_group(random, messages, 1);
    MachineOptions machine = random_machine(random);
    machine.in_place = false;  // a message to oneself would have nothing to do
    const Status whole = check_together(flights, machine);
    REQUIRE_MESSAGE(whole.ok(), describe(flights), whole.message());
    machine.left_out = {messages.front().problem.spec.root, static_cast<uint32_t>(random())};
    ++left_out;
    const bool accepted = check_together(flights, machine).ok();
    if (accepted) MESSAGE("survives: ", describe(flights));
    missed += accepted ? 0 : 1;
  });
  MESSAGE("missed ", missed, " of ", left_out);
  CHECK(missed >= left_out - left_out / 100);
}

TEST_CASE("rings so small that senders wait for credit") {
  for (const uint64_t seed : fake::sampled_seeds(kCases, kInFlightOneIn)) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    const topology::Topology topology = on_one_host(random);
    const plan::Spec spec = test::random_spec(random, topology);
    Options options = test::random_options(random);
    draw_windows(random, options);
    if (random() % 2 == 0) test::draw_lengths(random, spec, topology, options);
    const std::vector<plan::RankPlan> plans = test::plan_all(spec, topology);
    Lowered lowered = lower_all(spec, topology, plans, options).value();
    shrink_rings(lowered, plans, options);
    const std::vector<Flight> flights(2, {&lowered});
    const Status status = check_together(flights, random_machine(random));
    REQUIRE_MESSAGE(status.ok(), describe(flights), status.message(), "\n", topology.to_json());
  }
}

}  // namespace
}  // namespace hetccl::verify
