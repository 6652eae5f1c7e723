// Rules that every Library of the ccl seam must follow.
#include "ccl/ccl.h"

#include <doctest/doctest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/waker.h"
#include "ccl/host/host_library.h"
#include "contract/ccl_ranks.h"
#include "device/host/host_device.h"
#include "fake/reference.h"
#include "fake/sample.h"
#include "fake/thread.h"
#include "host/task_queue.h"

using namespace hetccl;
using namespace hetccl::ccl;
using namespace hetccl::contract;

namespace {

#if defined(HETCCL_UNDER_TSAN) || defined(HETCCL_UNDER_ASAN)  // which are slow
constexpr uint64_t kOneIn = 5;
#else
constexpr uint64_t kOneIn = 1;
#endif

// The factor of `rank` in every PreMulSum.
Reducer reducer_of(RedOp op, DataType type, int rank) {
  return {op, fake::element_of(type, rank == 1 ? 3 : 0.5 + rank)};
}

Bytes expected_sum(uint64_t call, int n, DataType type, RedOp op, size_t count) {
  std::vector<Bytes> all;
  std::vector<const void*> pointers;
  std::vector<Factor> factors;
  for (int r = 0; r < n; ++r) {
    all.push_back(contribution(call, r, type, count));
    factors.push_back(reducer_of(op, type, r).factor);
  }
  for (const Bytes& one : all) pointers.push_back(one.data());
  Bytes result(count * size_of(type));
  fake::reference_reduce(result.data(), pointers, count, type, op, static_cast<uint32_t>(n),
                         factors.data());
  return result;
}

// Every second time at once, which another rank does with the same call or does not.
void check_all_reduce(Rank& self, uint64_t call, DataType type, RedOp op, size_t count,
                      bool in_place) {
  const Bytes mine = contribution(call, self.rank, type, count);
  std::byte* send = self.place(mine);
  std::byte* recv = in_place ? send : self.place(Bytes(mine.size()));
  const Reducer how = reducer_of(op, type, self.rank);
  auto& comm = *self.comm;
  if ((call + static_cast<uint64_t>(self.rank)) % 2 == 0)
    need(comm.all_reduce_at_once(send, recv, count, type, how, self.native()).status(), "at once");
  else
    need(comm.all_reduce(send, recv, count, type, how, self.native()), "all_reduce");
  self.finish();
  need(self.comm->async_error(), "all_reduce");
  need(self.fetch(recv, mine.size()) == expected_sum(call, self.size, type, op, count),
       "all_reduce of " + std::to_string(count) + " " + std::string(name_of(type)) + " " +
           std::string(name_of(op)) + " is wrong");
  if (!in_place)
    need(fake::equal(self.fetch(send, mine.size()), mine), "all_reduce wrote its input");
  self.forget_memory();
}

bool receives(const Shard& shard, int rank) {
  return shard.receiver < 0 || shard.receiver == rank;
}

// A random list of shards, the same on all ranks; checks reduce or broadcast.
void check_shards(Rank& self, uint64_t call, bool is_reduce, size_t largest) {
  std::mt19937_64 random(call);
  const DataType type = fake::kTypes[random() % std::size(fake::kTypes)];
  const std::vector<RedOp> ops = fake::ops_of(type);
  const RedOp op = ops[random() % ops.size()];
  const size_t n_shards = random() % 9;
  std::vector<Shard> shards;
  for (size_t s = 0; s < n_shards; ++s) {
    Shard shard;
    shard.root = static_cast<int>(random() % static_cast<uint64_t>(self.size));
    shard.count = random() % 4 == 0 ? random() % 3 : random() % largest;
    if (!is_reduce && random() % 3 == 0)
      shard.receiver = static_cast<int>(random() % static_cast<uint64_t>(self.size));
    const bool in_place = random() % 2 == 0, is_root = shard.root == self.rank;
    const size_t bytes = shard.count * size_of(type);
    if (is_reduce || is_root)
      shard.send = self.place(contribution(call + s, self.rank, type, shard.count));
    if (is_reduce ? is_root : receives(shard, self.rank))
      shard.recv =
          in_place && shard.send ? const_cast<void*>(shard.send) : self.place(Bytes(bytes));
    shards.push_back(shard);
  }
  need(is_reduce ? self.comm->reduce(shards, type, reducer_of(op, type, self.rank), self.native())
                 : self.comm->broadcast(shards, type, self.native()),
       "shards");
  self.finish();
  need(self.comm->async_error(), "shards");
  for (size_t s = 0; s < n_shards; ++s) {
    const Shard& shard = shards[s];
    if (is_reduce ? shard.root != self.rank : !receives(shard, self.rank)) continue;
    const Bytes expected = is_reduce ? expected_sum(call + s, self.size, type, op, shard.count)
                                     : contribution(call + s, shard.root, type, shard.count);
    need(fake::equal(self.fetch(shard.recv, expected.size()), expected),
         "shard " + std::to_string(s) + " of call " + std::to_string(call) + " is wrong");
  }
  self.forget_memory();
}

}  // namespace

TEST_CASE("all_reduce: every type and operator, in and out of place") {
  for (bool asynchronous : {false, true})
    for (int n : asynchronous ? std::vector{3} : std::vector{1, 2, 5})
      run_ranks(n, asynchronous, [](Rank& self) {
        uint64_t call = 0;
        for (DataType type : fake::kTypes)
          for (RedOp op : fake::ops_of(type))
            for (size_t count : {0, 1, 13, 777}) {
              ++call;
              if (fake::is_sampled(call, kOneIn))
                check_all_reduce(self, call, type, op, count, call % 2 == 0);
            }
      });
}

TEST_CASE("all_reduce: odd sizes around slots and stages") {
  for (bool asynchronous : {false, true})
    for (int n : asynchronous ? std::vector{3} : std::vector{2, 5})
      run_ranks(n, asynchronous, [](Rank& self) {
        uint64_t call = 0;
        for (size_t count :
             {2047, 2048, 2049, 8192, 8193, 65'535, 65'536, 65'537, 300'001, 1'048'577}) {
          if (!fake::is_sampled(++call, kOneIn > 1 ? 2 : 1)) continue;
          const bool large = count > 70'000;  // its reference takes long
          if (large && self.size > 2) continue;
          check_all_reduce(self, call, DataType::Float32, RedOp::Sum, count, call % 2 == 0);
          if (large) continue;
          check_all_reduce(self, call, DataType::BFloat16, RedOp::Avg, count, call % 2 == 1);
          check_all_reduce(self, call, DataType::Int8, RedOp::Max, count, call % 2 == 0);
        }
      });
}

TEST_CASE("reduce and broadcast of random lists of shards") {
  for (bool asynchronous : {false, true})
    for (int n = 1; n <= 5; ++n)
      run_ranks(n, asynchronous, [&](Rank& self) {
        for (uint64_t call = 1; call <= (asynchronous ? 10 : 25); ++call) {
          if (!fake::is_sampled(call, kOneIn)) continue;
          check_shards(self, call * 100, call % 2 == 0, 3000);
          if (call % 10 == 0) check_shards(self, call * 100 + 50, call % 2 == 0, 70'000);
        }
      });
}

TEST_CASE("a broadcast whose results leave the caches") {
  run_ranks(3, false, [](Rank& self) {
    const size_t count = (size_t{5} << 20) + 3;
    for (const int root : {0, 2}) {
      const Bytes data = contribution(1, root, DataType::Uint8, count);
      std::byte* recv = self.place(Bytes(count + 1)) + 1;
      const void* send = self.rank == root ? self.place(data) : nullptr;
      const Shard whole{root, send, recv, count};
      need(self.comm->broadcast({&whole, 1}, DataType::Uint8, self.native()), "broadcast");
      self.finish();
      need(fake::equal(self.fetch(recv, count), data), "a large broadcast is wrong");
      self.forget_memory();
    }
  });
}

TEST_CASE("long lists of shards") {
  run_ranks(3, false, [](Rank& self) {
    constexpr size_t kShards = 5000;
    std::vector<Bytes> parts;
    std::vector<Shard> shards;
    std::byte* result = self.place(Bytes(kShards * 4));
    for (size_t s = 0; s < kShards; ++s) {
      const int root = static_cast<int>(s % 3);
      void* send =
          root == self.rank ? self.place(contribution(s, root, DataType::Int32, 1)) : nullptr;
      shards.push_back({root, send, result + s * 4, 1});
    }
    need(self.comm->broadcast(shards, DataType::Int32, self.native()), "broadcast");
    self.finish();
    const Bytes got = self.fetch(result, kShards * 4);
    for (size_t s = 0; s < kShards; ++s) {
      const Bytes one = contribution(s, static_cast<int>(s % 3), DataType::Int32, 1);
      need(std::memcmp(one.data(), got.data() + s * 4, 4) == 0, "shard " + std::to_string(s));
    }
  });
}

TEST_CASE("many calls enqueued at once, over two streams, complete in order") {
  for (bool asynchronous : {false, true})
    run_ranks(3, asynchronous, [](Rank& self) {
      constexpr int kCalls = 60;
      auto other = std::move(self.device().create_stream().value());
      Bytes one(4 * 1000);
      for (size_t i = 0; i < 1000; ++i) one[4 * i] = std::byte{1};
      std::byte* data = self.place(one);
      auto* flag =
          static_cast<device::Flag*>(self.device().allocate_pinned(sizeof(device::Flag)).value());
      std::byte* scratch = self.place(Bytes(64));
      for (int i = 0; i < kCalls; ++i) {
        const size_t count = i % 3 == 0 ? 1000 : 0;
        void* stream = i % 2 == 0 ? self.native() : other->native();
        // Only one stream touches the data; the others only synchronise.
        if (i % 6 == 0)
          need(self.comm->all_reduce(data, data, count, DataType::Int32, {RedOp::Sum}, stream),
               "1");
        else if (i % 6 == 3)
          need(self.comm->all_reduce(scratch, scratch, 3, DataType::Int8, {RedOp::Max}, stream),
               "2");
        else
          need(self.comm->barrier(stream), "3");
      }
      (void)self.device().write_flag(*other, *flag, 1);
      self.finish();
      const TimePoint end = steady_clock().now() + fake::kHang;
      while (!flag->reached(1)) {
        need(steady_clock().now() < end, "the second stream hangs");
        if (!self.device().progress()) std::this_thread::yield();
      }
      const Bytes got = self.fetch(data, 4000);
      uint32_t value = 0, expected = 1;
      for (int i = 0; i < kCalls; i += 6) expected *= 3;
      std::memcpy(&value, got.data() + 3996, 4);
      need(value == expected, "got " + std::to_string(value));
      other.reset();
      self.device().free_pinned(flag);
    });
}

TEST_CASE("barrier: nobody passes before the last has come") {
  for (bool asynchronous : {false, true}) {
    std::atomic<int> come{0};
    run_ranks(4, asynchronous, [&](Rank& self) {
      std::this_thread::sleep_for(std::chrono::milliseconds(3 * self.rank));
      ++come;
      need(self.comm->barrier(self.native()), "barrier");
      self.finish();
      need(come == 4, "passed early");
    });
  }
}

TEST_CASE("ranks that call different things all get an error that shows both") {
  using Call = std::function<Status(Rank&, std::byte*)>;
  const auto all_reduce = [](size_t count, DataType type, RedOp op) -> Call {
    return [=](Rank& self, std::byte* memory) {
      return self.comm->all_reduce(memory, memory, count, type, {op}, self.native());
    };
  };
  const auto rooted = [](int root, size_t count, bool is_reduce) -> Call {
    return [=](Rank& self, std::byte* memory) {
      const Shard shard{root, memory, memory, count};
      return is_reduce
                 ? self.comm->reduce({&shard, 1}, DataType::Float32, {RedOp::Sum}, self.native())
                 : self.comm->broadcast({&shard, 1}, DataType::Float32, self.native());
    };
  };
  const auto base = all_reduce(100, DataType::Float32, RedOp::Sum);
  struct Case {
    Call call, other;
    std::string shown;
  };
  const Case cases[] = {
      {base, all_reduce(101, DataType::Float32, RedOp::Sum), "all_reduce of 101 float32"},
      {base, all_reduce(100'000, DataType::Float32, RedOp::Sum), "all_reduce of 100000 float32"},
      {base, all_reduce(100, DataType::Int32, RedOp::Sum), "all_reduce of 100 int32"},
      {base, all_reduce(100, DataType::Float32, RedOp::Max), "all_reduce of 100 float32, max"},
      {base, all_reduce(0, DataType::Float32, RedOp::Sum), "all_reduce of 0 float32"},
      {base, rooted(0, 100, true), "reduce of 100 float32"},
      {rooted(0, 100, false), rooted(1, 100, false), "other roots"},
      {base, [](Rank& self, std::byte*) { return self.comm->barrier(self.native()); }, "barrier"},
  };
  for (bool asynchronous : {false, true})
    for (const Case& one : cases)
      run_ranks(3, asynchronous, [&](Rank& self) {
        std::byte* memory = self.place(Bytes(400'000));
        for (int i = 0; i < 5; ++i) need(base(self, memory), "before");
        self.finish();
        need(self.comm->async_error(), "before");
        need((self.rank == 1 ? one.other : one.call)(self, memory), "enqueue");
        self.finish();
        const Status error = self.comm->async_error();
        need(error.code() == ErrorCode::InvalidUsage, "no error for " + one.shown);
        need(error.message().find(one.shown) != std::string::npos, error.message());
        need(error.message().find("cluster rank 1") != std::string::npos, error.message());
        need(!base(self, memory).ok(), "later calls must fail fast");
      });
}

TEST_CASE("abort by one rank ends everybody's operations") {
  for (bool asynchronous : {false, true})
    for (int round = 0; round < 6; ++round)
      run_ranks(3, asynchronous, [&](Rank& self) {
        std::byte* memory = self.place(Bytes(8 << 20));
        fake::Thread aborter;
        for (int i = 0; i < 8; ++i) {
          if (self.rank == 2 && i >= round) {  // never comes again, and gives up
            if (!aborter.joinable()) aborter = fake::Thread([&] { self.comm->abort(); });
            continue;
          }
          // After the abort the call itself may fail.
          (void)self.comm->all_reduce(memory, memory, 2 << 20, DataType::Float32, {RedOp::Sum},
                                      self.native());
        }
        self.finish();
        if (aborter.joinable()) aborter.join();
        const TimePoint end = steady_clock().now() + fake::kHang;
        while (self.comm->async_error().ok() && steady_clock().now() < end)
          std::this_thread::yield();
        need(self.comm->async_error().code() == ErrorCode::Aborted, "not aborted");
        need(self.comm->barrier(self.native()).code() == ErrorCode::Aborted, "later calls fail");
      });
}

TEST_CASE("init names the ranks that do not come, and refuses what is wrong") {
  auto library = make_host_library();
  auto id = library->unique_id(4, 5000);
  REQUIRE(id.ok());
  Status first, second;
  fake::Thread other([&] { second = library->init(*id, 4, 2, nullptr, 5000).status(); });
  first = library->init(*id, 4, 0, nullptr, fake::patient_ms(300)).status();
  other.join();
  CHECK(first.code() == ErrorCode::Timeout);
  CHECK(first.message().find("1, 3") != std::string::npos);
  CHECK(second.code() == ErrorCode::Timeout);
  CHECK(second.message().find("1, 3") != std::string::npos);

  CHECK(library->unique_id(0, 5000).status().code() == ErrorCode::InvalidArgument);
  CHECK(library->init(UniqueId{}, 2, 0, nullptr, 10).status().code() == ErrorCode::InvalidArgument);
  auto two = library->unique_id(2, 5000);
  REQUIRE(two.ok());
  CHECK(library->init(*two, 3, 0, nullptr, 10).status().code() == ErrorCode::InvalidArgument);
  CHECK(library->init(*two, 2, 2, nullptr, 10).status().code() == ErrorCode::InvalidArgument);
  UniqueId forged = *two;
  forged.bytes[40] = static_cast<uint8_t>(forged.bytes[40] ^ 1);  // the token
  CHECK_FALSE(library->init(forged, 2, 1, nullptr, 10).ok());
}

TEST_CASE("an id that was forgotten is worth nothing") {
  auto library = make_host_library();
  auto id = library->unique_id(1, 5000);
  REQUIRE(id.ok());
  library->forget(*id);
  CHECK_FALSE(library->init(*id, 1, 0, nullptr, kTimeoutMs).ok());
  library->forget(*id);
  library->forget({});
}

TEST_CASE("bad arguments are refused at the call") {
  run_ranks(1, false, [](Rank& self) {
    std::byte* memory = self.place(Bytes(64));
    auto& comm = *self.comm;
    const auto refused = [](const Status& status) {
      need(status.code() == ErrorCode::InvalidArgument, "accepted");
    };
    refused(comm.all_reduce(memory, memory, 4, DataType::Float32, {RedOp::Sum}, nullptr));
    refused(comm.all_reduce(memory, memory, SIZE_MAX / 4, DataType::Float64, {RedOp::Sum},
                            self.native()));
    refused(
        comm.all_reduce(memory, memory, 4, static_cast<DataType>(50), {RedOp::Sum}, self.native()));
    const Shard shard{1, memory, memory, 4};
    refused(comm.reduce({&shard, 1}, DataType::Float32, {RedOp::Sum}, self.native()));
    need(comm.async_error(), "refusals are no failures");
  });
}

TEST_CASE("a sleeping rank is woken by the peer that advances it") {
  auto library = make_host_library();
  auto id = library->unique_id(2, 5000);
  REQUIRE(id.ok());
  std::string failures[2];
  constexpr int kRounds = 50;
  const auto body = [&](int r) {
    auto waker = std::move(Waker::create().value());
    auto device = device::make_host_device();
    auto stream = std::move(device->create_stream().value());
    auto comm = std::move(library->init(*id, 2, r, waker.get(), kTimeoutMs).value());
    ShmSource* source = comm->shm_source();
    need(source != nullptr, "no source");
    float value = 1;
    for (int i = 0; i < kRounds; ++i) {
      if (r == i % 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      need(comm->all_reduce(&value, &value, 1, DataType::Float32, {RedOp::Sum}, stream->native()),
           "call");
      auto& queue = *static_cast<TaskQueue*>(stream->native());
      device->progress();
      while (!queue.empty()) {
        source->arm();
        if (!device->progress()) {
          pollfd entry{waker->fd(), POLLIN, 0};
          need(poll(&entry, 1, static_cast<int>(kTimeoutMs)) == 1, "nobody rang");
          waker->drain();
        }
        source->disarm();
        device->progress();
      }
      value /= 2;
    }
    need(value == 1, "wrong value");
  };
  fake::Thread threads[2];
  for (int r = 0; r < 2; ++r)
    threads[r] = fake::Thread([&, r] {
      try {
        body(r);
      } catch (const std::exception& failure) {
        failures[r] = failure.what();
      }
    });
  for (auto& thread : threads) thread.join();
  CHECK(failures[0] == "");
  CHECK(failures[1] == "");
}

TEST_CASE("processes share a cluster, and one that dies is ended by abort") {
  auto library = make_host_library();
  auto id = library->unique_id(2, 5000);
  REQUIRE(id.ok());
  const pid_t child = fork();
  if (child == 0) {
    int result = 0;
    try {
      auto mine = make_host_library();  // the child must attach, not inherit
      Rank self(*mine, *id, 2, 1, false, 1);
      for (uint64_t call = 1; call <= 20; ++call)
        check_all_reduce(self, call, DataType::Float32, RedOp::Sum, call * 9973, call % 2 == 0);
      check_shards(self, 100, true, 5000);
      check_shards(self, 200, false, 100'000);
    } catch (const std::exception& failure) {
      std::fprintf(stderr, "child: %s\n", failure.what());
      result = 1;
    }
    _exit(result);
  }
  std::string failure;
  try {
    Rank self(*library, *id, 2, 0, false, 1);
    for (uint64_t call = 1; call <= 20; ++call)
      check_all_reduce(self, call, DataType::Float32, RedOp::Sum, call * 9973, call % 2 == 0);
    check_shards(self, 100, true, 5000);
    check_shards(self, 200, false, 100'000);
    int state = -1;
    CHECK(waitpid(child, &state, 0) == child);
    CHECK(state == 0);
    // The child is gone: only abort ends this.
    need(self.comm->barrier(self.native()), "barrier");
    for (int i = 0; i < 100; ++i) self.device().progress();
    need(self.comm->async_error(), "too early");
    self.comm->abort();
    self.finish();
  } catch (const std::exception& caught) {
    failure = caught.what();
  }
  CHECK(failure == "");
}
