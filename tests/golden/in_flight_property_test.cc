// Different calls in flight at once, over random topologies: two collectives, and some with a
// message beside them.
#include <doctest/doctest.h>

#include <algorithm>
#include <deque>

#include "golden/random_call.h"

namespace hetccl::verify {
namespace {

#if defined(__SANITIZE_ADDRESS__)
constexpr uint64_t kCases = 100;
#else
constexpr uint64_t kCases = 4000;
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

/// What all calls of a communicator find alike.
void share_windows(Options& options, const Options& first) {
  options.late_windows = first.late_windows;
  options.most_ring_bytes = first.most_ring_bytes;
}

/// Windows of any size, or so small that few messages fit.
void draw_windows(std::mt19937_64& random, Options& options) {
  options.late_windows = random() % 2 == 0;
  if (random() % 2 == 0) options.most_ring_bytes = lower::Ring::kGrain * (random() % 64);
}

class Draw {
 public:
  Draw(std::mt19937_64& random, const topology::Topology& topology)
      : random_(random), topology_(topology) {
    draw_windows(random, windows_);
  }

  Lowered collective() {
    return lower(test::random_spec(random_, topology_), test::random_options(random_));
  }
  Lowered uneven() {
    const Collective collective = test::kUneven[random_() % std::size(test::kUneven)];
    const plan::Spec spec = test::random_spec(random_, topology_, collective);
    Options options = test::random_options(random_);
    test::draw_lengths(random_, spec, topology_, options);
    return lower(spec, std::move(options));
  }
  Lowered message() {
    Options options = test::random_options(random_);
    share_windows(options, windows_);
    const int from = test::random_rank(random_, topology_);
    const int to = test::random_rank(random_, topology_);
    return lower_message(from, to, topology_, options).value();
  }

 private:
  Lowered lower(const plan::Spec& spec, Options options) {
    share_windows(options, windows_);
    return lower_all(spec, topology_, test::plan_all(spec, topology_), options).value();
  }

  std::mt19937_64& random_;
  const topology::Topology& topology_;
  Options windows_;
};

std::string describe(const std::vector<Flight>& flights) {
  std::string text;
  for (const Flight& flight : flights) {
    const Problem& problem = flight.call->problem;
    text += std::string(name_of(problem.spec.collective)) + " of rank " +
            std::to_string(problem.spec.root) + " to " + std::to_string(problem.to) + ", ";
  }
  return text;
}

MachineOptions random_machine(std::mt19937_64& random) {
  return {.in_place = random() % 2 == 0, .buffer_sets = static_cast<uint32_t>(1 + random() % 2)};
}

TEST_CASE("different calls in flight") {
  for (uint64_t seed = 0; seed < kCases * test::scale(); ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    const topology::Topology topology = any_topology(random);
    Draw draw(random, topology);
    const Lowered first = draw.collective(), second = draw.collective(), beside = draw.message();
    std::vector<Flight> flights = {{&first}, {&second}};
    if (random() % 4 == 0) flights.push_back({&first});
    for (uint64_t messages = random() % 3; messages > 0; --messages) {
      // Anywhere, but in one place at both ends: their streams may be one queue of the hardware.
      const auto place = static_cast<std::ptrdiff_t>(random() % (flights.size() + 1));
      flights.insert(flights.begin() + place, {&beside, 1});
    }
    const Status status = check_together(flights, random_machine(random));
    REQUIRE_MESSAGE(status.ok(), describe(flights), status.message(), "\n", topology.to_json());
  }
}

TEST_CASE("uneven calls in flight, alike and beside even ones") {
  for (uint64_t seed = 0; seed < kCases * test::scale(); ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    const topology::Topology topology = any_topology(random);
    Draw draw(random, topology);
    const Lowered uneven = draw.uneven(), other = draw.collective();
    std::vector<Flight> flights = {{&uneven}, {random() % 2 == 0 ? &uneven : &other}};
    if (random() % 2 == 0) std::swap(flights[0], flights[1]);
    const Status status = check_together(flights, random_machine(random));
    REQUIRE_MESSAGE(status.ok(), describe(flights), status.message(), "\n", topology.to_json());
  }
}

TEST_CASE("rings so small that senders wait for credit") {
  for (uint64_t seed = 0; seed < kCases * test::scale(); ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    const topology::Topology topology = on_one_host(random);
    const plan::Spec spec = test::random_spec(random, topology);
    Options options = test::random_options(random);
    draw_windows(random, options);
    const bool may_be_uneven =
        std::count(std::begin(test::kUneven), std::end(test::kUneven), spec.collective) > 0;
    if (may_be_uneven && random() % 2 == 0) test::draw_lengths(random, spec, topology, options);
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
