// Calls reach adaptors in order, and their results come back right.
#include "ccl/adaptor/adaptor_library.h"

#include <doctest/doctest.h>

#include <atomic>
#include <functional>
#include <numeric>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "fake/host_adaptor.h"
#include "fake/patience.h"
#include "fake/thread.h"
#include "host/task_queue.h"

namespace hetccl::ccl {
namespace {

constexpr int kRanks = 3;

bool has(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

struct Rank {
  int rank;
  Communicator& comm;
  TaskQueue& queue;

  void run() const {
    const TimePoint end = steady_clock().now() + fake::kHang;
    while (!queue.empty() && steady_clock().now() < end)
      if (!queue.poll()) std::this_thread::yield();
    CHECK(queue.empty());
  }
};

void on_ranks(const std::function<void(const Rank&)>& body) {
  const auto library = make_adaptor_library(adaptor::check(&fake::host_adaptor(), "", {}).value());
  const UniqueId id = library->unique_id(kRanks, fake::kHangMs).value();
  std::vector<fake::Thread> threads;
  for (int r = 0; r < kRanks; ++r) {
    threads.emplace_back([&, r] {
      TaskQueue queue;
      auto made = library->init(id, kRanks, r, nullptr, fake::kHangMs);
      REQUIRE(made.ok());
      body({r, **made, queue});
    });
  }
  for (fake::Thread& thread : threads) thread.join();
}

TEST_CASE("reductions, averages by hetccl") {
  on_ranks([](const Rank& rank) {
    std::vector<float> mine(1000, static_cast<float>(rank.rank + 1)), result(1000);
    REQUIRE(rank.comm
                .all_reduce(mine.data(), result.data(), 1000, DataType::Float32, {RedOp::Sum},
                            &rank.queue)
                .ok());
    rank.run();
    CHECK(result == std::vector<float>(1000, 6));
    const Shard pieces[] = {{1, mine.data(), result.data(), 400}, {2, mine.data(), mine.data(), 7}};
    REQUIRE(rank.comm.reduce(pieces, DataType::Float32, {RedOp::Avg}, &rank.queue).ok());
    rank.run();
    if (rank.rank == 1) CHECK(result[399] == 2);
    CHECK(result[400] == 6);
    CHECK(mine[6] == (rank.rank == 2 ? 2 : rank.rank + 1));
    CHECK(rank.comm.async_error().ok());
  });
}

TEST_CASE("broadcasts, messages and barriers") {
  on_ranks([](const Rank& rank) {
    std::vector<int> data(100, rank.rank), got(100, -1);
    const Shard pieces[] = {{2, data.data(), got.data(), 50},
                            {0, data.data(), got.data() + 50, 50, 1}};
    REQUIRE(rank.comm.broadcast(pieces, DataType::Int32, &rank.queue).ok());
    REQUIRE(rank.comm.barrier(&rank.queue).ok());
    rank.run();
    CHECK(got[49] == 2);
    CHECK(got[99] == (rank.rank == 1 ? 0 : -1));
    const int next = (rank.rank + 1) % kRanks, before = (rank.rank + 2) % kRanks;
    const Transfer transfers[] = {{next, true, data.data(), 100}, {before, false, got.data(), 100}};
    REQUIRE(rank.comm.exchange(transfers, DataType::Int32, &rank.queue).ok());
    rank.run();
    CHECK(got == std::vector<int>(100, before));
  });
}

// Streams are driven in opposite orders; the library sees the order of the calls.
TEST_CASE("calls on two streams start in the order of the calls") {
  on_ranks([](const Rank& rank) {
    TaskQueue other;
    std::vector<int> values(20);
    std::iota(values.begin(), values.end(), 0);
    for (size_t i = 0; i < values.size(); ++i) {
      TaskQueue& queue = i % 3 == 0 ? other : rank.queue;
      REQUIRE(rank.comm.all_reduce(&values[i], &values[i], 1, DataType::Int32, {RedOp::Sum}, &queue)
                  .ok());
    }
    while (!rank.queue.empty() || !other.empty()) {
      rank.rank % 2 == 0 ? other.poll() : rank.queue.poll();
      rank.rank % 2 == 0 ? rank.queue.poll() : other.poll();
    }
    for (size_t i = 0; i < values.size(); ++i) CHECK(values[i] == kRanks * static_cast<int>(i));
  });
}

TEST_CASE("what the adaptor does not do is refused at the call") {
  on_ranks([](const Rank& rank) {
    char memory[16] = {};
    const auto code = [&](DataType type, RedOp op) {
      return rank.comm.all_reduce(memory, memory, 1, type, {op}, &rank.queue).code();
    };
    CHECK(code(DataType::Float16, RedOp::Sum) == ErrorCode::Unsupported);
    CHECK(code(DataType::Float32, RedOp::PreMulSum) == ErrorCode::Unsupported);
    CHECK(code(DataType::Int8, RedOp::Avg) == ErrorCode::Unsupported);
    CHECK(rank.comm.barrier(nullptr).code() == ErrorCode::InvalidArgument);
    const Shard nowhere[] = {{kRanks, memory, memory, 1}};
    CHECK(rank.comm.broadcast(nowhere, DataType::Int8, &rank.queue).code() ==
          ErrorCode::InvalidArgument);
  });
}

TEST_CASE("a call that another rank never makes ends by abort, on this rank alone") {
  std::atomic<int> stuck{0}, ended{0};
  on_ranks([&](const Rank& rank) {
    while (rank.rank == 0 && ended < kRanks - 1) std::this_thread::yield();
    if (rank.rank == 0) return;
    int value = 1;
    REQUIRE(
        rank.comm.all_reduce(&value, &value, 1, DataType::Int32, {RedOp::Sum}, &rank.queue).ok());
    for (int i = 0; i < 10; ++i) rank.queue.poll();
    CHECK_FALSE(rank.queue.empty());
    ++stuck;
    while (stuck < kRanks - 1) std::this_thread::yield();
    rank.comm.abort();
    rank.run();
    CHECK(rank.comm.async_error().code() == ErrorCode::RemoteError);
    CHECK_FALSE(rank.comm.barrier(&rank.queue).ok());
    ++ended;
  });
}

TEST_CASE("a failure of the adaptor is the communicator's, with its words") {
  on_ranks([](const Rank& rank) {
    REQUIRE(rank.comm.barrier(&rank.queue).ok());
    rank.run();
  });
  fake::fail_host_adaptor(true);
  on_ranks([](const Rank& rank) {
    REQUIRE(rank.comm.barrier(&rank.queue).ok());
    rank.run();
    CHECK(has(rank.comm.async_error().message(), "it is broken"));
  });
  fake::fail_host_adaptor(false);
}

// Makes a library for clusters of one rank.
std::unique_ptr<Library> library_of_one(const std::function<void(hetcclLibraryAdaptor&)>& change) {
  hetcclLibraryAdaptor library = *fake::host_adaptor().library;
  library.init = [](const void*, int, int, int64_t, void** communicator) {
    static int one = 0;
    *communicator = &one;
    return 0;
  };
  library.start = [](void*, const hetcclLibraryWork* work, void**) {
    for (size_t p = 0; p < work->n_pieces; ++p) static_cast<int*>(work->pieces[p].recv)[0] = 7;
    return 0;
  };
  library.test = [](void*, void*, int* done) {
    *done = 1;
    return 0;
  };
  library.destroy = [](void*) {};
  change(library);
  const hetcclAdaptorTable table = fake::table_of(&library);
  return make_adaptor_library(adaptor::check(&table, "one.so", {}).value());
}

Status run_alone(Library& library, int& value) {
  TaskQueue queue;
  HETCCL_ASSIGN(auto comm, library.init({}, 1, 0, nullptr, fake::patient_ms(500)));
  HETCCL_TRY(comm->all_reduce(&value, &value, 1, DataType::Int32, {RedOp::Sum}, &queue));
  while (!queue.empty()) queue.poll();
  return comm->async_error();
}

TEST_CASE("an init that forgets its communicator is an error") {
  int value = 0;
  CHECK(run_alone(*library_of_one([](auto&) {}), value).ok());
  CHECK(value == 7);
  const auto library = library_of_one([](hetcclLibraryAdaptor& table) {
    table.init = [](const void*, int, int, int64_t, void**) { return 0; };
  });
  CHECK(has(run_alone(*library, value).message(), "init has made no communicator"));
}

TEST_CASE("an exception that leaves the adaptor is an error") {
  int value = 0;
  const auto library = library_of_one(
      [](hetcclLibraryAdaptor& table) { table.test = [](void*, void*, int*) -> int { throw 1; }; });
  CHECK(has(run_alone(*library, value).message(), "an exception has left the adaptor"));
  const auto wild = library_of_one([](hetcclLibraryAdaptor& table) {
    table.reduces = [](hetcclDataType_t, hetcclRedOp_t) -> int { throw 1; };
  });
  CHECK_FALSE(wild->supports(DataType::Int32, RedOp::Sum));
}

namespace {

// Functions of an adaptor that return once they are released.
struct Held {
  std::atomic<bool> released{false};
  std::atomic<int> left{0};
  int wait() {
    const TimePoint end = steady_clock().now() + fake::kHang;
    while (!released && steady_clock().now() < end) std::this_thread::yield();
    ++left;
    return 1;
  }
};
Held held;

}  // namespace

TEST_CASE("an init, an id and a score that do not end are given up at their deadline") {
  int value = 0;
  const auto library = library_of_one([](hetcclLibraryAdaptor& table) {
    table.init = [](const void*, int, int, int64_t, void**) { return held.wait(); };
  });
  const auto pensive = library_of_one(
      [](hetcclLibraryAdaptor& table) { table.make_id = [](int, void*) { return held.wait(); }; });
  CHECK(has(pensive->unique_id(1, 50).status().message(), "make_id has not ended within 50 ms"));
  const TimePoint start = steady_clock().now();
  CHECK(run_alone(*library, value).code() == ErrorCode::Timeout);
  CHECK(steady_clock().now() - start < fake::kHang / 2);
  static hetcclLibraryAdaptor slow = *fake::host_adaptor().library;
  slow.score = [] { return held.wait(); };
  static const hetcclAdaptorTable table = fake::table_of(&slow);
  CHECK(score_of(adaptor::check(&table, "slow.so", {}).value(), 50).status().code() ==
        ErrorCode::Timeout);
  held.released = true;
  while (held.left < 3) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));  // time for them to return
}

}  // namespace
}  // namespace hetccl::ccl
