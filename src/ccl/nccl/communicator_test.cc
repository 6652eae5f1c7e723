// Tests the NCCL calls that a list of shards becomes, and what happens when NCCL fails or hangs.
#include "ccl/nccl/communicator.h"

#include <doctest/doctest.h>

#include <array>
#include <chrono>
#include <vector>

#include "base/clock.h"
#include "fake/fake_nccl.h"
#include "fake/no_threads.h"
#include "fake/patience.h"
#include "fake/thread.h"

namespace hetccl::ccl {
namespace {

using Calls = std::vector<std::string>;
constexpr DataType kFloat = DataType::Float32;  // 7

struct Rig {
  fake::FakeNccl nccl;
  std::shared_ptr<fake::FakeWorkspace> workspace = std::make_shared<fake::FakeWorkspace>();
  std::unique_ptr<Library> library;
  std::unique_ptr<Communicator> comm;
  std::array<std::byte, 4096> memory{};

  explicit Rig(int n_ranks = 3, int rank = 1, int version_code = 22'800) {
    nccl.base = memory.data();
    nccl.version_code = version_code;
    library = make_nccl_library(nccl.api(), workspace, kNcclReach);
    auto made = library->init(library->unique_id(n_ranks, 5000).value(), n_ranks, rank, nullptr,
                              fake::kHangMs);
    REQUIRE_MESSAGE(made.ok(), made.status().message());
    comm = std::move(made).value();
    nccl.take();
  }
  std::byte* at(size_t offset) { return memory.data() + offset; }
  // Makes one shard per rank of `count` floats each, contiguous; results begin 400 bytes further.
  std::vector<Shard> line(size_t count, bool follows = true) {
    std::vector<Shard> shards;
    for (int r = 0; r < 3; ++r) {
      const size_t offset = static_cast<size_t>(r) * count * 4;
      shards.push_back({r, at(offset), at(400 + offset), count, -1, follows && r > 0});
    }
    return shards;
  }
};

TEST_CASE("all_reduce, and none of nothing") {
  Rig rig;
  CHECK(rig.comm->all_reduce(rig.at(0), rig.at(64), 4, kFloat, {RedOp::Max}, nullptr).ok());
  CHECK(rig.nccl.take() == Calls{"all_reduce +0 +64 4 7 2"});
  CHECK(rig.comm->all_reduce(rig.at(0), rig.at(64), 0, kFloat, {RedOp::Sum}, nullptr).ok());
  CHECK(rig.nccl.take().empty());
}

TEST_CASE("memory is registered where NCCL does, and thread blocks are as many as asked for") {
  Rig rig;
  const auto registered = rig.comm->register_memory(rig.at(8), 64);
  REQUIRE(registered.ok());
  CHECK(registered.value() == rig.at(8));
  CHECK(rig.comm->deregister_memory(registered.value()).ok());
  CHECK(rig.nccl.take() == Calls{"register +8 64", "deregister +8"});
  rig.nccl.registers = false;
  CHECK(rig.comm->register_memory(rig.at(8), 64).value() == nullptr);

  const ccl::UniqueId id = rig.library->unique_id(3, 5000).value();
  CHECK(rig.library->init_with_blocks(id, 3, 1, {2, 8}, fake::kHangMs).ok());
  CHECK(rig.nccl.min_blocks == 2);
  CHECK(rig.nccl.max_blocks == 8);
  CHECK(rig.library->init_with_blocks(id, 3, 1, {0, 4}, fake::kHangMs).ok());
  CHECK(rig.nccl.min_blocks == nccl::CommConfig::kUnset);

  const auto api = rig.nccl.api();
  api->register_memory = nullptr;
  api->init_with = nullptr;
  const auto old = make_nccl_library(api, rig.workspace, kNcclReach);
  const Status refused = old->init_with_blocks(id, 3, 1, {2, 8}, fake::kHangMs).status();
  CHECK(refused.code() == ErrorCode::Unsupported);
  CHECK(refused.message().find("lacks ncclCommInitRankConfig") != std::string::npos);
  const auto made = old->init(id, 3, 1, nullptr, fake::kHangMs);
  REQUIRE(made.ok());
  CHECK(made.value()->register_memory(rig.at(8), 64).value() == nullptr);
}

TEST_CASE("collectives run as they were told to; what can be told is known from the first calls") {
  Rig rig;
  Tactics ring;
  for (size_t call = 0; call < kLibraryCalls; ++call)
    ring.add(static_cast<LibraryCall>(call), Tactic::kRing, Tactic::kSimple);
  CHECK(rig.comm->tactics()->bits() == ring.bits());
  auto shards = rig.line(5), apart = rig.line(5, false);
  const std::vector<std::function<Status()>> calls = {
      [&] { return rig.comm->all_reduce(rig.at(0), rig.at(64), 4, kFloat, {RedOp::Sum}, nullptr); },
      [&] { return rig.comm->reduce(shards, kFloat, {RedOp::Sum}, nullptr); },
      [&] { return rig.comm->reduce(apart, kFloat, {RedOp::Sum}, nullptr); },
      [&] { return rig.comm->broadcast(shards, kFloat, nullptr); },
      [&] { return rig.comm->broadcast(apart, kFloat, nullptr); }};
  for (const uint16_t channels : {uint16_t{4}, uint16_t{2}, uint16_t{0}}) {
    rig.comm->set_tactic({.channels = channels});
    for (const auto& call : calls) {
      CHECK(call().ok());
      CHECK(rig.nccl.channels == channels);
    }
  }
  rig.comm->set_tactic({.channels = 4});
  CHECK(rig.comm->barrier(nullptr).ok());
  CHECK(rig.nccl.channels == 0);  // this one belongs to hetccl
  CHECK_FALSE(Rig(1, 0).comm->tactics().has_value());
}

TEST_CASE("one shard a rank, equal and contiguous, is one call") {
  Rig rig;
  auto shards = rig.line(5);
  CHECK(rig.comm->reduce(shards, kFloat, {RedOp::Sum}, nullptr).ok());
  CHECK(rig.nccl.take() == Calls{"reduce_scatter +0 +420 5 7 0"});
  CHECK(rig.comm->broadcast(shards, kFloat, nullptr).ok());
  CHECK(rig.nccl.take() == Calls{"all_gather +20 +400 5 7"});
}

TEST_CASE("shards that lie apart, differ or are out of order are a group") {
  Rig rig;
  auto apart = rig.line(5, false), unequal = rig.line(5), swapped = rig.line(5);
  CHECK(rig.comm->reduce(apart, kFloat, {RedOp::Avg}, nullptr).ok());
  CHECK(rig.nccl.take() == Calls{"group {", "reduce +0 +400 5 7 4 0", "reduce +20 +420 5 7 4 1",
                                 "reduce +40 +440 5 7 4 2", "}"});
  unequal[1].count = 4;
  unequal[2].count = 0;
  CHECK(rig.comm->broadcast(unequal, kFloat, nullptr).ok());
  CHECK(rig.nccl.take() ==
        Calls{"group {", "broadcast +0 +400 5 7 0", "broadcast +20 +420 4 7 1", "}"});
  std::swap(swapped[0].root, swapped[1].root);
  CHECK(rig.comm->reduce(swapped, kFloat, {RedOp::Sum}, nullptr).ok());
  CHECK(rig.nccl.take().size() == 5);
  CHECK(rig.comm->reduce(std::span(apart).first(1), kFloat, {RedOp::Sum}, nullptr).ok());
  CHECK(rig.nccl.take() == Calls{"group {", "reduce +0 +400 5 7 0 0", "}"});
  for (Shard& shard : apart) shard.count = 0;
  CHECK(rig.comm->reduce(apart, kFloat, {RedOp::Sum}, nullptr).ok());
  CHECK(rig.comm->broadcast(apart, kFloat, nullptr).ok());
  CHECK(rig.comm->reduce({}, kFloat, {RedOp::Sum}, nullptr).ok());
  CHECK(rig.nccl.take().empty());
}

TEST_CASE("a receiver is sent to; others make no call") {
  Rig rig;  // rank 1
  const std::vector<Shard> shards = {
      {0, rig.at(0), rig.at(400), 3, 1}, {0, rig.at(0), nullptr, 3, 2},
      {1, rig.at(8), nullptr, 2, 0},     {2, nullptr, rig.at(16), 0, 1},
      {1, rig.at(8), rig.at(80), 2, 1},  {1, rig.at(8), rig.at(8), 2, 1},
      {2, nullptr, rig.at(32), 1}};
  CHECK(rig.comm->broadcast(shards, kFloat, nullptr).ok());
  CHECK(rig.nccl.take() == Calls{"group {", "broadcast null +32 1 7 2", "}", "group {",
                                 "recv +400 3 7 0", "send +8 2 7 0", "send +8 2 7 1",
                                 "recv +80 2 7 1", "}"});
  CHECK(rig.comm->broadcast(std::span(shards).subspan(1, 1), kFloat, nullptr).ok());
  CHECK(rig.nccl.take().empty());
}

TEST_CASE("an exchange is one group of sends and receives, in the list's order") {
  Rig rig;  // rank 1
  const std::vector<Transfer> transfers = {{2, true, rig.at(0), 3},    {0, false, rig.at(400), 5},
                                           {2, true, rig.at(16), 2},   {0, true, rig.at(24), 0},
                                           {1, false, rig.at(440), 1}, {1, true, rig.at(32), 1}};
  const Calls expected = {"group {",
                          "send +0 3 7 2",
                          "recv +400 5 7 0",
                          "send +16 2 7 2",
                          "recv +440 1 7 1",
                          "send +32 1 7 1",
                          "}"};
  CHECK(rig.library->supports_exchange());
  CHECK(rig.comm->exchange(transfers, kFloat, nullptr).ok());
  CHECK(rig.nccl.take() == expected);
  CHECK(rig.comm->exchange(std::span(transfers).first(1), DataType::Int16, nullptr).ok());
  CHECK(rig.nccl.take() == Calls{"group {", "send +0 6 1 2", "}"});
}

TEST_CASE("a rank without messages makes no call of NCCL's") {
  Rig rig;
  const Transfer none{0, true, rig.at(0), 0};
  CHECK(rig.comm->exchange({}, kFloat, nullptr).ok());
  CHECK(rig.comm->exchange({&none, 1}, kFloat, nullptr).ok());
  CHECK(rig.nccl.take().empty());
}

TEST_CASE("bad peers, and messages to itself that a rank does not receive, are refused") {
  Rig rig;
  const auto refused = [&](std::vector<Transfer> transfers) {
    CHECK(rig.comm->exchange(transfers, kFloat, nullptr).code() == ErrorCode::InvalidArgument);
    CHECK(rig.nccl.take().empty());
  };
  refused({{3, true, rig.at(0), 1}});
  refused({{-1, false, rig.at(0), 1}});
  refused({{1, true, rig.at(0), 1}});
  refused({{1, false, rig.at(0), 1}});
  refused({{1, true, rig.at(0), 1}, {1, false, rig.at(8), 2}});
  refused({{1, true, rig.at(0), 1}, {1, false, rig.at(8), 1}, {1, false, rig.at(8), 1}});
}

TEST_CASE("a failed send ends the group and is told; an aborted communicator refuses") {
  Rig rig;
  const Transfer transfer{2, true, rig.at(0), 3};
  rig.nccl.send_outcome = nccl::kInvalidUsage;
  const Status status = rig.comm->exchange({&transfer, 1}, kFloat, nullptr);
  CHECK(status.code() == ErrorCode::InvalidUsage);
  CHECK(status.message().find("ncclSend") != std::string::npos);
  CHECK(rig.nccl.take().back() == "}");
  rig.comm->abort();
  CHECK(rig.comm->exchange({&transfer, 1}, kFloat, nullptr).code() == ErrorCode::Aborted);
}

TEST_CASE("init connects every pair of ranks, in all sizes") {
  Rig rig;
  Calls calls;
  rig.nccl.on_init = [&] { return rig.nccl.take(), 0; };
  auto made = rig.library->init({}, 3, 1, nullptr, fake::kHangMs);
  REQUIRE(made.ok());
  for (const std::string& call : rig.nccl.take())
    if (call.starts_with("send ")) calls.push_back(call.substr(call.find(' ', 5)));
  CHECK(calls == Calls{" 1 7 0", " 1 7 1", " 1 7 2", " 21845 7 0", " 21845 7 1", " 21845 7 2",
                       " 1398101 7 0", " 1398101 7 1", " 1398101 7 2"});
}

PendingPair::Made make_pair(Rig& rig, int rank) {
  std::atomic<int> woken{0};
  HETCCL_ASSIGN(const auto pending,
                rig.library->begin_pair({{}, rank, 12}, nullptr, fake::kHangMs, [&] { ++woken; }));
  for (;; std::this_thread::yield()) {
    TimePoint again = TimePoint::max();
    if (auto made = pending->poll(steady_clock().now(), again)) return std::move(*made);
  }
}

TEST_CASE(
    "a communicator for a pair takes as many blocks as it is told, and runs messages alone at "
    "first") {
  Rig rig;
  rig.nccl.on_init = [&] { return rig.nccl.take(), 0; };
  CHECK(rig.library->makes_pairs());
  CHECK(make_pair(rig, 2).status().code() == ErrorCode::InvalidArgument);
  REQUIRE(make_pair(rig, 1).ok());
  CHECK(rig.nccl.max_blocks == 12);
  const Calls calls = rig.nccl.take();
  CHECK(std::count_if(calls.begin(), calls.end(),
                      [](const std::string& call) { return call.starts_with("all_"); }) == 0);
  CHECK(std::count(calls.begin(), calls.end(), "group {") == 2);
}

TEST_CASE("first messages of a pair that do not meet are ended, and nothing comes of it") {
  Rig on_the_device, in_the_call;
  on_the_device.workspace->stuck = true;
  in_the_call.nccl.blocks = true;
  for (Rig* rig : {&on_the_device, &in_the_call}) {
    const auto made = make_pair(*rig, 1);
    REQUIRE_MESSAGE(made.ok(), made.status().message());
    CHECK(made.value() == nullptr);
    const Calls calls = rig->nccl.take();
    CHECK(std::count(calls.begin(), calls.end(), "abort") == 1);
  }
}

TEST_CASE("what only moves may be of any type; what adds may not") {
  Rig rig(3, 1, 22'300);
  auto shards = rig.line(4);
  CHECK(rig.comm->broadcast(shards, DataType::Int16, nullptr).ok());
  CHECK(rig.nccl.take() == Calls{"all_gather +16 +400 8 1"});
  CHECK(rig.comm->broadcast(shards, DataType::Float8E4m3, nullptr).ok());
  CHECK(rig.nccl.take() == Calls{"all_gather +16 +400 4 1"});
  for (const DataType type : {DataType::Int16, DataType::Uint16, DataType::Float8E5m2}) {
    CHECK(rig.comm->reduce(shards, type, {RedOp::Sum}, nullptr).code() == ErrorCode::Unsupported);
    CHECK_FALSE(rig.library->supports(type, RedOp::Sum));
  }
  CHECK(rig.nccl.take().empty());
  Rig newer;
  CHECK(newer.comm->broadcast(newer.line(4), DataType::Float8E4m3, nullptr).ok());
  CHECK(newer.nccl.take() == Calls{"all_gather +16 +400 4 1"});
  CHECK(newer.library->supports(DataType::Float8E5m2, RedOp::PreMulSum));
  newer.workspace->gpu = "sm_89";
  CHECK_FALSE(newer.library->supports(DataType::Float8E5m2, RedOp::PreMulSum));
  CHECK(newer.library->supports(DataType::BFloat16, RedOp::PreMulSum));
}

TEST_CASE("a pre-multiplied sum's operator is made for the call") {
  Rig rig;
  CHECK(rig.comm->all_reduce(rig.at(0), rig.at(0), 2, kFloat, {RedOp::PreMulSum}, nullptr).ok());
  const Calls calls = rig.nccl.take();
  REQUIRE(calls.size() == 3);
  CHECK(calls[0] == "create_op 7 1");
  CHECK(calls[2].starts_with("destroy_op "));
  CHECK(calls[1] == "all_reduce +0 +0 2 7 " + calls[2].substr(11));
}

TEST_CASE("bad roots and receivers are refused, and nothing is called") {
  Rig rig;
  const Shard root{3, rig.at(0), rig.at(0), 1}, receiver{0, rig.at(0), rig.at(0), 1, 3};
  CHECK(rig.comm->reduce({&root, 1}, kFloat, {RedOp::Sum}, nullptr).code() ==
        ErrorCode::InvalidArgument);
  CHECK(rig.comm->broadcast({&receiver, 1}, kFloat, nullptr).code() == ErrorCode::InvalidArgument);
  CHECK(rig.nccl.take().empty());
}

TEST_CASE("NCCL's failure is told in its words") {
  Rig rig;
  CHECK(rig.comm->async_error().ok());
  rig.nccl.async_outcome = nccl::kRemoteError;
  CHECK(rig.comm->async_error().code() == ErrorCode::RemoteError);
  CHECK(rig.comm->async_error().message().find("in words") != std::string::npos);
}

TEST_CASE("a communicator is destroyed in order, aborted where it failed, and once") {
  Rig rig;
  rig.comm.reset();
  CHECK(rig.nccl.take() == Calls{"destroy"});
  Rig failed;
  failed.nccl.async_outcome = nccl::kRemoteError;
  failed.comm.reset();
  CHECK(failed.nccl.take() == Calls{"abort"});
  Rig aborted;
  aborted.comm->abort();
  aborted.comm->abort();
  CHECK(aborted.comm->async_error().code() == ErrorCode::Aborted);
  CHECK(aborted.comm->barrier(nullptr).code() == ErrorCode::Aborted);
  aborted.comm.reset();
  CHECK(aborted.nccl.take() == Calls{"abort"});
}

TEST_CASE("an abort reaches a call that waits inside NCCL") {
  Rig rig;
  std::atomic<bool> over = false;
  rig.nccl.on_abort = [&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    over = true;
  };
  rig.nccl.blocks = true;
  fake::Thread caller([&] {  // its result does not matter
    static_cast<void>(rig.comm->all_reduce(rig.at(0), rig.at(64), 4, kFloat, {}, nullptr));
  });
  while (rig.nccl.take().empty()) std::this_thread::yield();
  rig.comm->abort();
  caller.join();
  CHECK(rig.comm->barrier(nullptr).code() == ErrorCode::Aborted);
  rig.comm.reset();
  CHECK(over);  // memory that NCCL may still use is not freed
  CHECK(rig.nccl.take() == Calls{"abort"});
}

TEST_CASE("an abort has begun once NCCL knows of it, not before") {
  Rig rig;
  std::atomic<bool> returns = false;
  rig.nccl.on_abort = [&] {
    while (!returns) std::this_thread::yield();
  };
  rig.nccl.blocks = true;
  fake::Thread caller([&] {
    static_cast<void>(rig.comm->all_reduce(rig.at(0), rig.at(64), 4, kFloat, {}, nullptr));
  });
  while (rig.nccl.take().empty()) std::this_thread::yield();
  CHECK_FALSE(rig.comm->abort_has_begun());
  rig.comm->abort();
  CHECK_FALSE(rig.comm->abort_has_begun());  // a call is inside NCCL and has time to return
  while (!rig.comm->abort_has_begun()) std::this_thread::yield();
  CHECK(rig.nccl.take() == Calls{"abort"});  // still under way
  returns = true;
  caller.join();
}

TEST_CASE("an abort for which there is no thread is begun as soon as there is one") {
  Rig rig;
  {
    const fake::NoThreads none;
    rig.comm->abort();
    CHECK_FALSE(rig.comm->abort_has_begun());
    CHECK(rig.library->init({}, 2, 0, nullptr, 50).status().code() == ErrorCode::SystemError);
  }
  while (!rig.comm->abort_has_begun()) std::this_thread::yield();
  rig.comm.reset();
  CHECK(rig.nccl.take() == Calls{"abort"});
}

// Memory that abandoned threads use must live as long as the process.
TEST_CASE("init obeys its deadline and its cancel while NCCL does not return") {
  struct Held {
    fake::FakeNccl nccl;
    std::atomic<bool> release{false};
    std::atomic<int> left{0};
  };
  static Held* const held = new Held;
  held->nccl.on_init = [] {
    while (!held->release) std::this_thread::yield();
    ++held->left;
    return 2;
  };
  auto library =
      make_nccl_library(held->nccl.api(), std::make_shared<fake::FakeWorkspace>(), kNcclReach);
  const TimePoint start = steady_clock().now();
  CHECK(library->init({}, 2, 0, nullptr, 50).status().code() == ErrorCode::Timeout);
  auto cancel = Cancel::create().value();
  cancel->set(error(ErrorCode::RemoteError, "rank 7 is gone"));
  CHECK(library->init({}, 2, 0, nullptr, {60'000, cancel.get()}).status().message() ==
        "rank 7 is gone");
  CHECK(steady_clock().now() - start < fake::kHang);
  held->release = true;
  library.reset();
  while (held->left < 2) std::this_thread::yield();
}

TEST_CASE("init says why it failed, and first calls that hang are aborted") {
  fake::FakeNccl nccl;
  nccl.on_init = [] { return 2; };
  auto library = make_nccl_library(nccl.api(), std::make_shared<fake::FakeWorkspace>(), kNcclReach);
  const auto failed = library->init({}, 2, 0, nullptr, fake::kHangMs);
  CHECK(failed.status().message().find("ncclCommInitRank: an error") != std::string::npos);

  nccl.on_init = [] { return 0; };
  auto workspace = std::make_shared<fake::FakeWorkspace>();
  workspace->stuck = true;
  library = make_nccl_library(nccl.api(), workspace, kNcclReach);
  nccl.base = nullptr;
  CHECK(library->init({}, 2, 0, nullptr, 50).status().code() == ErrorCode::Timeout);
  const TimePoint end = steady_clock().now() + fake::kHang;
  bool aborted = false;
  while (!aborted && steady_clock().now() < end)
    for (const auto& call : nccl.take()) aborted |= call == "abort";
  CHECK(aborted);
  while (workspace.use_count() > 2) std::this_thread::yield();
}

}  // namespace
}  // namespace hetccl::ccl
