// NCCL behind the seam, with one rank a GPU: sums of small whole numbers, which are exact in every
// type and order.
#include <doctest/doctest.h>

#include <chrono>
#include <cstring>
#include <random>
#include <thread>

#include "base/clock.h"
#include "comm/gpus.h"
#include "fake/patience.h"
#include "fake/reference.h"
#include "fake/thread.h"
#include "gpu/gpu.h"

using namespace hetccl;
using namespace hetccl::ccl;
using namespace hetccl::gpu_tests;

namespace {

using Bytes = std::vector<std::byte>;
constexpr int64_t kTimeoutMs = 40'000;

void need(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error(what);
}
void need(const Status& status, const std::string& what) {
  need(status.ok(), what + ": " + status.message());
}

struct Rank {
  int size = 1, rank = 0;
  device::Device* device = nullptr;
  std::unique_ptr<Communicator> comm;
  std::unique_ptr<device::Stream> stream;
  std::vector<void*> memory;

  std::byte* place(const Bytes& content) {
    void* fresh = device->allocate(content.size()).value();
    memory.push_back(fresh);
    upload(*device, fresh, content.data(), content.size());
    return static_cast<std::byte*>(fresh);
  }
  [[nodiscard]] Bytes fetch(const void* from, size_t bytes) const {
    Bytes content(bytes);
    download(*device, content.data(), from, bytes);
    return content;
  }
  void finish() {
    need(drain(*device, *stream), "a collective hangs");
    need(comm->async_error(), "afterwards");
  }
  ~Rank() {
    comm.reset();
    stream.reset();
    for (void* one : memory) device->free(one);
  }
};

// Runs `body` on every GPU. Returns false if there is none.
bool run_ranks(int n_ranks, const std::function<void(Rank&)>& body) {
  static const Config config = Config::from_environment().value();
  static const Log log{LogLevel::Warn};
  static const comm::GpuRow& row = row_of(vendors().front());
  static comm::Gpus gpus(row, config, log);
  const int n = std::min(n_ranks, count());
  if (n == 0) return false;
  auto first = gpus.device(vendors().front() + ":0");
  REQUIRE_MESSAGE(first.ok(), first.status().message());
  const auto library = gpus.library(*first.value());
  if (!library.ok() && !wanted()) {
    MESSAGE("SKIPPED: " << library.status().message());
    return false;
  }
  REQUIRE_MESSAGE(library.ok(), library.status().message());
  auto id = library.value()->unique_id(n, 5000);
  REQUIRE_MESSAGE(id.ok(), id.status().message());
  std::vector<std::string> failures(static_cast<size_t>(n));
  std::vector<fake::Thread> threads;
  for (int r = 0; r < n; ++r) {
    threads.emplace_back([&, r] {
      try {
        Rank rank;
        rank.size = n;
        rank.rank = r;
        rank.device = gpus.device(vendors().front() + ":" + std::to_string(r)).value();
        rank.stream = rank.device->create_stream().value();
        auto made = gpus.library(*rank.device).value()->init(*id, n, r, nullptr, kTimeoutMs);
        need(made.status(), "init");
        rank.comm = std::move(made).value();
        body(rank);
      } catch (const std::exception& failure) {
        failures[static_cast<size_t>(r)] = failure.what();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& failure : failures) CHECK(failure == "");
  return true;
}

// Elements of `rank`, small and whole.
Bytes elements(uint64_t call, int rank, DataType type, size_t count) {
  std::mt19937_64 random(call * 1000 + static_cast<uint64_t>(rank));
  Bytes bytes;
  for (size_t i = 0; i < count; ++i) {
    const Factor one = fake::element_of(type, static_cast<double>(random() % 3));
    const auto* first = reinterpret_cast<const std::byte*>(one.element);
    bytes.insert(bytes.end(), first, first + size_of(type));
  }
  return bytes;
}

Reducer reducer_of(RedOp op, DataType type) {
  return {op, fake::element_of(type, 2)};
}

Bytes expected(uint64_t call, int n, DataType type, RedOp op, size_t count) {
  std::vector<Bytes> all;
  std::vector<const void*> pointers;
  std::vector<Factor> factors(static_cast<size_t>(n), reducer_of(op, type).factor);
  for (int r = 0; r < n; ++r) all.push_back(elements(call, r, type, count));
  for (const Bytes& one : all) pointers.push_back(one.data());
  Bytes result(count * size_of(type));
  fake::reference_reduce(result.data(), pointers, count, type, op, static_cast<uint32_t>(n),
                         factors.data());
  return result;
}

// NCCL multiplies a single rank's data by a kernel that it may lack for fp8.
bool lacks_alone(RedOp op, DataType type, int n) {
  const bool fp8 = type == DataType::Float8E4m3 || type == DataType::Float8E5m2;
  return n == 1 && fp8 && (op == RedOp::Avg || op == RedOp::PreMulSum);
}

// Averages of whole numbers are exact in all types if there are 1, 2 or 4 ranks.
bool exact(RedOp op, DataType type, int n) {
  if (op != RedOp::Avg) return true;
  const bool whole = type < DataType::Float16;
  return !whole && (n == 1 || n == 2 || n == 4);
}

// A list of shards, random or one a rank in a row; checks reduce or broadcast.
void check_shards(Rank& self, uint64_t call, bool is_reduce, bool in_a_row) {
  std::mt19937_64 random(call);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<uint64_t>(n)); };
  const DataType type = in_a_row ? DataType::BFloat16 : DataType::Float32;
  const size_t n_shards = in_a_row ? static_cast<size_t>(self.size) : random() % 9;
  const size_t common = 1 + random() % 3000;
  std::vector<Shard> shards;
  std::byte* results = self.place(Bytes(n_shards * 3000 * 4));
  std::byte* inputs = self.place(Bytes(n_shards * 3000 * 4));
  size_t offset = 0;
  for (size_t s = 0; s < n_shards; ++s) {
    Shard shard;
    shard.root = in_a_row ? static_cast<int>(s) : below(self.size);
    shard.count = in_a_row ? common : random() % 3000;
    if (!is_reduce && !in_a_row && random() % 3 == 0) shard.receiver = below(self.size);
    shard.follows = in_a_row && s > 0;
    const Bytes input = elements(call + s, is_reduce ? self.rank : shard.root, type, shard.count);
    upload(*self.device, inputs + offset, input.data(), input.size());
    shard.send = inputs + offset;
    shard.recv = results + offset;
    offset += input.size();
    shards.push_back(shard);
  }
  const Reducer sum{RedOp::Sum};
  need(is_reduce ? self.comm->reduce(shards, type, sum, self.stream->native())
                 : self.comm->broadcast(shards, type, self.stream->native()),
       "shards");
  self.finish();
  for (size_t s = 0; s < n_shards; ++s) {
    const Shard& shard = shards[s];
    const bool receives = shard.receiver < 0 || shard.receiver == self.rank;
    if (is_reduce ? shard.root != self.rank : !receives) continue;
    const Bytes want = is_reduce ? expected(call + s, self.size, type, RedOp::Sum, shard.count)
                                 : elements(call + s, shard.root, type, shard.count);
    need(self.fetch(shard.recv, want.size()) == want,
         "shard " + std::to_string(s) + " of call " + std::to_string(call) + " is wrong");
  }
}

// One message; `number` makes its content.
struct Message {
  int from = 0, to = 0;
  size_t count = 0;
  uint64_t number = 0;
};

// This rank's part of `messages`, in one call; its receives come first in the list.
void check_messages(Rank& self, const std::vector<Message>& messages, DataType type) {
  std::vector<Transfer> transfers;
  std::vector<std::pair<const std::byte*, Bytes>> results;
  for (const bool send : {false, true}) {
    for (const Message& one : messages) {
      if ((send ? one.from : one.to) != self.rank) continue;
      const Bytes content = elements(one.number, one.from, type, one.count);
      std::byte* data = self.place(send ? content : Bytes(content.size()));
      transfers.push_back({send ? one.to : one.from, send, data, one.count});
      if (!send) results.emplace_back(data, content);
    }
  }
  need(self.comm->exchange(transfers, type, self.stream->native()), "messages");
  self.finish();
  for (const auto& [data, content] : results)
    need(self.fetch(data, content.size()) == content, "a message is wrong");
}

}  // namespace

TEST_CASE("all_reduce: every type and operator, in and out of place") {
  for (const int n : {1, 2, 4}) {
    if (n > std::max(count(), 1)) break;
    const bool ran = run_ranks(n, [](Rank& self) {
      uint64_t call = 0;
      for (const DataType type : fake::kTypes) {
        if (type >= DataType::Int16) continue;
        for (const RedOp op : fake::kOps) {
          if (!exact(op, type, self.size) || lacks_alone(op, type, self.size)) continue;
          for (const size_t count : {size_t{0}, size_t{1}, size_t{1001}}) {
            const Bytes mine = elements(++call, self.rank, type, count);
            std::byte* send = self.place(mine);
            std::byte* recv = call % 2 == 0 ? send : self.place(Bytes(mine.size()));
            need(self.comm->all_reduce(send, recv, count, type, reducer_of(op, type),
                                       self.stream->native()),
                 "all_reduce of " + std::string(name_of(type)) + " " + std::string(name_of(op)));
            self.finish();
            need(self.fetch(recv, mine.size()) == expected(call, self.size, type, op, count),
                 "all_reduce of " + std::to_string(count) + " " + std::string(name_of(type)) + " " +
                     std::string(name_of(op)) + " is wrong");
          }
        }
      }
      need(self.comm->barrier(self.stream->native()), "barrier");
      self.finish();
    });
    if (!ran) return;
  }
}

TEST_CASE("reduce and broadcast of lists of shards") {
  for (const int n : {1, 2, 3, 4}) {
    if (n > std::max(count(), 1)) break;
    const bool ran = run_ranks(n, [](Rank& self) {
      for (uint64_t call = 1; call <= 24; ++call)
        check_shards(self, call * 100, call % 2 == 0, call % 3 == 0);
    });
    if (!ran) return;
  }
}

TEST_CASE("exchange: all-to-all, gather, scatter, repeated messages, in types that only move") {
  for (const int n : {1, 2, 4}) {
    if (n > std::max(count(), 1)) break;
    const bool ran = run_ranks(n, [](Rank& self) {
      uint64_t number = 0;
      for (const DataType type : {DataType::Float32, DataType::Int16, DataType::Float8E4m3}) {
        for (const size_t largest : {size_t{5}, size_t{3001}, size_t{1} << 20}) {
          std::vector<Message> all, gather, scatter;
          for (int from = 0; from < self.size; ++from) {
            for (int to = 0; to < self.size; ++to) {
              for (int again = 0; again < 2; ++again)
                all.push_back({from, to, largest * static_cast<size_t>((from + to) % 3), ++number});
            }
            gather.push_back({from, self.size - 1, largest, ++number});
            scatter.push_back({0, from, largest + static_cast<size_t>(from), ++number});
          }
          for (const auto& messages : {all, gather, scatter, std::vector<Message>{}})
            check_messages(self, messages, type);
        }
      }
    });
    if (!ran) return;
  }
}

TEST_CASE("abort ends a collective that a rank never calls") {
  if (count() < 2) {
    MESSAGE("SKIPPED: it takes two GPUs");
    return;
  }
  run_ranks(2, [](Rank& self) {
    std::byte* memory = self.place(Bytes(4096));
    if (self.rank == 0) {
      need(self.comm->all_reduce(memory, memory, 1024, DataType::Float32, {RedOp::Sum},
                                 self.stream->native()),
           "all_reduce");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    const TimePoint start = steady_clock().now();
    self.comm->abort();
    need(steady_clock().now() - start < fake::kHang / 2, "abort blocks");
    need(drain(*self.device, *self.stream), "the stream did not drain");
    need(self.comm->async_error().code() == ErrorCode::Aborted, "no error after abort");
  });
}

TEST_CASE("init does not wait for a missing rank beyond its deadline") {
  if (count() < 2) {
    MESSAGE("SKIPPED: it takes two GPUs");
    return;
  }
  static const Config config = Config::from_environment().value();
  static const Log log;
  static const comm::GpuRow& row = row_of(vendors().front());
  // Never destroyed, because NCCL keeps the attempt's thread, which uses it.
  auto* gpus = new comm::Gpus(row, config, log);
  auto* device = gpus->device(vendors().front() + ":0").value();
  auto* library = gpus->library(*device).value();
  const auto id = library->unique_id(2, 5000).value();
  const TimePoint start = steady_clock().now();
  CHECK(library->init(id, 2, 0, nullptr, 500).status().code() == ErrorCode::Timeout);
  CHECK(steady_clock().now() - start < fake::kHang / 2);
}
