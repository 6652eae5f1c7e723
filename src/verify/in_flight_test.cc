// Different calls in flight: mistakes that show only when calls run side by side.
#include <doctest/doctest.h>

#include <algorithm>
#include <utility>

#include "golden/random_call.h"
#include "verify/mutate.h"
#include "verify/testing.h"

namespace hetccl::verify {
namespace {

using lower::Opcode;
using testing::check_fault;

constexpr Options kLong{.count = 200'000, .slice_bytes = 65'536};

topology::Topology on_devices(const char* layout) {
  std::vector<topology::RankInfo> infos = test::layout_topology(layout).infos();
  for (topology::RankInfo& info : infos) info.host_access = false;
  return topology::Topology::build(std::move(infos)).value();
}

Lowered lower_call(Collective collective, const topology::Topology& topology) {
  const plan::Spec spec{collective};
  return lower_all(spec, topology, test::plan_all(spec, topology), kLong).value();
}

void remove(lower::Code& code, Opcode op, lower::QueueKind queue) {
  const auto is_wanted = [&](const lower::Instruction& one) {
    return one.op == op && one.queue == lower::stream_queue(queue);
  };
  const auto found = std::find_if(code.list.begin(), code.list.end(), is_wanted);
  REQUIRE(found != code.list.end());
  const auto index = static_cast<uint32_t>(found - code.list.begin());
  code.list.erase(found);
  code.body -= index < code.body ? 1 : 0;
  code.epilogue -= index < code.epilogue ? 1 : 0;
  lower::index_lanes(code);
}

std::string fault(const std::vector<Flight>& flights, const MachineOptions& options = {}) {
  const Status status = check_together(flights, options);
  return status.ok() ? "none" : status.message();
}

}  // namespace

TEST_CASE("a call that takes the buffers before another call has left them") {
  const topology::Topology topology = on_devices("AAB");
  const Lowered gather = lower_call(Collective::AllGather, topology);
  Lowered reduce = lower_call(Collective::Reduce, topology);
  CHECK(fault({{&gather}, {&reduce}}) == "none");
  // Two such calls use the buffers on the same streams in the same order.
  remove(reduce.codes[1], Opcode::Acquire, lower::QueueKind::User);
  CHECK(check_code(reduce.problem, reduce.codes).ok());
  check_fault(fault({{&gather}, {&reduce}}),
              "nothing orders rank 1, step 0 (copy) of call 0 and rank 1, step 0 (vendor call at "
              "stage 0) of call 1, which share memory");
  CHECK(fault({{&gather}, {&reduce}}, {.buffer_sets = 2}) == "none");
  CHECK(fault({{&gather}, {&reduce, 1}}) == "none");  // another executor has buffers of its own
}

TEST_CASE("a call that takes the buffers waits for those of its own set alone") {
  const topology::Topology topology = on_devices("AAB");
  const Lowered gather = lower_call(Collective::AllGather, topology),
                reduce = lower_call(Collective::Reduce, topology);
  CHECK(fault({{&gather}, {&reduce}, {&gather}, {&reduce}}, {.buffer_sets = 2}) == "none");
}

TEST_CASE("a message beside collectives, in a lane of its own") {
  const topology::Topology topology = on_devices("AB");
  const Lowered gather = lower_call(Collective::AllGather, topology);
  const Lowered message = lower_message(0, 1, topology, kLong).value();
  CHECK(fault({{&gather}, {&message, 1}}) == "none");
  CHECK(fault({{&message, 1}, {&gather}, {&message, 1}}) == "none");
  CHECK(message.codes[1].lanes.size() == 1);
}

TEST_CASE("a message that the library of a pair carries") {
  const topology::Topology topology = on_devices("AA");
  const Lowered by_library = lower_message(0, 1, topology, kLong, true).value(),
                back = lower_message(1, 0, topology, kLong, true).value(),
                by_channel = lower_message(0, 1, topology, kLong).value();
  for (const Lowered* one : {&by_library, &back}) {
    CHECK(testing::fault(*one) == "none");
    // The survivors order no data: the header may travel once the sender's stream has reached the
    // message, and the receiver's stream goes on once the header has been checked.
    const MutationReport report = try_mutants(one->problem, one->codes, 1000, 1);
    CHECK(report.made == 8);
    REQUIRE(report.survivors.size() == 2);
    for (const std::string& survivor : report.survivors)
      CHECK_MESSAGE(survivor.find("(wait, ") != std::string::npos, survivor);
  }
  CHECK(fault({{&by_channel, 1}, {&by_library, 1}, {&back, 2}, {&by_library, 1}}) == "none");
  const Lowered gather = lower_call(Collective::AllGather, topology);
  CHECK(fault({{&gather}, {&by_library, 1}, {&gather}}) == "none");
}

// Two ranks on one host share a window whose rings hold only part of a message.
topology::Topology with_windows(const char* layout) {
  std::vector<topology::RankInfo> infos = on_devices(layout).infos();
  for (topology::RankInfo& info : infos) {
    info.label = std::exchange(info.host, "one");
    info.window_bytes = 16 << 20;
  }
  return topology::Topology::build(std::move(infos)).value();
}

TEST_CASE("messages of one call pass each other, though their streams are one queue") {
  const topology::Topology topology = with_windows("AB");
  const Options longer{.count = 10'000'000, .slice_bytes = lower::kFixedSlice};
  const Lowered there = lower_message(0, 1, topology, longer).value(),
                back = lower_message(1, 0, topology, longer).value();
  CHECK(there.problem.targets[0].lanes[0].ring_bytes > 0);
  CHECK(fault({{&there, 1, 1}, {&back, 2, 1}}) == "none");
  CHECK(fault({{&back, 2, 1}, {&there, 1, 1}}) == "none");
  const Lowered gather = lower_call(Collective::AllGather, topology);
  CHECK(fault({{&gather}, {&there, 1, 1}, {&back, 2, 1}, {&gather}}) == "none");
  CHECK(fault({{&there, 1, 1}, {&there, 1, 1}, {&back, 2, 1}, {&back, 2, 1}, {&gather}}) == "none");
}

TEST_CASE("in a ring of ranks each sends to the next one and receives in one call") {
  const topology::Topology topology = with_windows("ABC");
  std::vector<Lowered> messages;
  std::vector<Flight> flights;
  for (int rank = 0; rank < 3; ++rank) {
    const uint64_t count = 4'000'000 + 3'000'000 * static_cast<uint64_t>(rank);
    const Options options{.count = count, .slice_bytes = lower::kFixedSlice};
    messages.push_back(lower_message(rank, (rank + 1) % 3, topology, options).value());
  }
  for (uint32_t i = 0; i < 3; ++i) flights.push_back({&messages[i], i, 1});
  CHECK(fault(flights) == "none");
}

TEST_CASE("ranks that are no end of a message do not launch it") {
  const topology::Topology topology = on_devices("AABC");
  const Lowered message = lower_message(2, 3, topology, kLong).value();
  CHECK_FALSE(message.problem.launches(0));
  CHECK(fault({{&message}, {&message}}) == "none");
  const Lowered own = lower_message(1, 1, topology, kLong).value();
  CHECK(fault({{&own, 1}, {&message, 1}}) == "none");
  Lowered broken = message;
  std::erase_if(broken.codes[3].list,
                [](const lower::Instruction& one) { return one.op == Opcode::Copy; });
  broken.codes[3].epilogue = broken.codes[3].epilogue - 1;
  CHECK(fault({{&broken}}) != "none");
}

}  // namespace hetccl::verify
