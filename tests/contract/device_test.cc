// Rules that every Device must follow, tested on the host, on the asynchronous fake device, and on
// GPUs (HETCCL_TEST_GPU=1: only on them).
#include "device/device.h"

#include <doctest/doctest.h>

#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "device/host/host_device.h"
#include "fake/fake_device.h"
#include "fake/patience.h"
#include "fake/reference.h"
#include "fake/thread.h"
#include "gpu/gpu.h"
#include "host/crew.h"

using namespace hetccl;
using namespace hetccl::device;
using fake::FakeDevice;

namespace {

using Bytes = std::vector<std::byte>;
constexpr auto kDeadline = fake::kHang;

enum class Kind { Host, Fake, Gpu };

std::vector<Kind> kinds() {
  if (gpu_tests::wanted()) return {Kind::Gpu};
  return {Kind::Host, Kind::Fake};
}

// A device under test, and functions that the suite needs beyond the seam.
struct Subject {
  std::string name;
  std::unique_ptr<Device> device;
  FakeDevice* fake = nullptr;
  bool on_gpu = false;

  explicit Subject(Kind kind, uint64_t seed = 1) {
    if (kind == Kind::Gpu) {
      device = gpu_tests::open();
      on_gpu = true;
    } else if (kind == Kind::Fake) {
      auto made = FakeDevice::create({.seed = seed, .max_delay_us = 50});
      REQUIRE(made.ok());
      fake = made->get();
      device = std::move(made.value());
    } else {
      device = make_host_device(std::make_shared<Crew>(2));
    }
    name = device->vendor();
  }
  void upload(void* memory, const Bytes& bytes) const {
    if (fake)
      fake->upload(memory, bytes.data(), bytes.size());
    else if (on_gpu)
      gpu_tests::upload(*device, memory, bytes.data(), bytes.size());
    else if (!bytes.empty())
      std::memcpy(memory, bytes.data(), bytes.size());
  }
  [[nodiscard]] Bytes download(const void* memory, size_t size) const {
    Bytes bytes(size);
    if (fake)
      fake->download(bytes.data(), memory, size);
    else if (on_gpu)
      gpu_tests::download(*device, bytes.data(), memory, size);
    else if (size > 0)
      std::memcpy(bytes.data(), memory, size);
    return bytes;
  }
  [[nodiscard]] std::unique_ptr<Stream> stream() const {
    auto made = device->create_stream();
    REQUIRE(made.ok());
    return std::move(made).value();
  }
  [[nodiscard]] std::unique_ptr<Event> event() const {
    auto made = device->create_event();
    REQUIRE(made.ok());
    return std::move(made).value();
  }
  [[nodiscard]] void* memory(size_t bytes) const {
    auto made = device->allocate(bytes);
    REQUIRE(made.ok());
    return made.value();
  }
  // Pinned; freed with the device's users.
  [[nodiscard]] Flag* flags(size_t count) const {
    auto made = device->allocate_pinned(count * sizeof(Flag));
    REQUIRE(made.ok());
    for (size_t i = 0; i < count * sizeof(Flag); ++i)
      REQUIRE(static_cast<std::byte*>(made.value())[i] == std::byte{0});
    return static_cast<Flag*>(made.value());
  }
  // Drives the device until the flag shows `value`.
  [[nodiscard]] bool reaches(const Flag& flag, uint32_t value,
                             Duration deadline = kDeadline) const {
    const TimePoint end = steady_clock().now() + deadline;
    while (!flag.reached(value)) {
      if (steady_clock().now() > end) return false;
      if (!device->progress()) std::this_thread::yield();
    }
    return true;
  }
};

constexpr auto kShort = std::chrono::milliseconds(5);

}  // namespace

TEST_CASE("many copies together are what they are one by one") {
  for (const Kind kind : kinds()) {
    Subject s(kind);
    CAPTURE(s.name);
    std::mt19937_64 random(5);
    Flag* flag = s.flags(1);
    auto stream = s.stream();
    constexpr size_t kBytes = size_t{4} << 20;
    void *from = s.memory(kBytes), *to = s.memory(kBytes);
    const Bytes data = fake::random_elements(random, DataType::Uint8, kBytes);
    Bytes expected(kBytes);
    s.upload(from, data);
    s.upload(to, expected);
    std::vector<Copy> copies;
    size_t at = 0;
    for (size_t i = 0; i < 300; ++i) {
      const bool is_long = i % 100 == 7;
      size_t bytes = is_long ? 300'000 + random() % 16 : random() % 20'000;
      if (i % 3 == 0) bytes = bytes / 16 * 16;
      if (at + bytes > kBytes) break;
      const size_t source = random() % (kBytes - bytes);
      copies.push_back(
          {static_cast<std::byte*>(to) + at, static_cast<const std::byte*>(from) + source, bytes});
      std::copy_n(data.begin() + static_cast<ptrdiff_t>(source), bytes,
                  expected.begin() + static_cast<ptrdiff_t>(at));
      at += bytes + random() % 3;
    }
    CHECK(s.device->copy_all(*stream, copies).ok());
    CHECK(s.device->write_flag(*stream, *flag, 1).ok());
    REQUIRE(s.reaches(*flag, 1));
    CHECK(s.download(to, kBytes) == expected);
    for (void* memory : {from, to}) s.device->free(memory);
    s.device->free_pinned(flag);
  }
}

TEST_CASE("copies of one stream run in order, of any size") {
  for (const Kind kind : kinds()) {
    Subject s(kind);
    CAPTURE(s.name);
    std::mt19937_64 random(3);
    Flag* flag = s.flags(1);
    auto stream = s.stream();
    uint32_t turn = 0;
    for (size_t bytes : {0, 1, 7, 4096, 100'001, (3 << 20) + 5}) {
      void *a = s.memory(bytes), *b = s.memory(bytes), *c = s.memory(bytes);
      const Bytes data = fake::random_elements(random, DataType::Uint8, bytes);
      s.upload(a, data);
      CHECK(s.device->copy(*stream, b, a, bytes).ok());
      CHECK(s.device->copy_soon(*stream, c, b, bytes).ok());
      CHECK(s.device->write_flag(*stream, *flag, ++turn).ok());
      REQUIRE(s.reaches(*flag, turn));
      CHECK(s.download(c, bytes) == data);
      if (bytes > 4096) {  // places of all alignments
        const auto at = [](void* memory, size_t offset) {
          return static_cast<std::byte*>(memory) + offset;
        };
        CHECK(s.device->copy(*stream, at(b, 0), at(c, 3), 4001).ok());
        CHECK(s.device->copy_soon(*stream, at(c, 17), at(b, 1), 4000).ok());
        CHECK(s.device->write_flag(*stream, *flag, ++turn).ok());
        REQUIRE(s.reaches(*flag, turn));
        Bytes expected(data.begin(), data.begin() + 17);
        expected.insert(expected.end(), data.begin() + 4, data.begin() + 4004);
        CHECK(s.download(c, expected.size()) == expected);
      }
      for (void* memory : {a, b, c}) s.device->free(memory);
    }
    stream.reset();
    s.device->free_pinned(flag);
  }
}

TEST_CASE("work that is launched together comes in its order") {
  using Kind = StreamWork::Kind;
  for (const auto kind : kinds()) {
    Subject s(kind);
    CAPTURE(s.name);
    if ((s.device->capabilities() & kBatches) == 0) {
      auto stream = s.stream();
      CHECK(s.device->run(*stream, {}, true).code() == ErrorCode::SystemError);
      continue;
    }
    Flag* flags = s.flags(2);
    constexpr size_t kCount = 8192;
    constexpr size_t kBytes = kCount * sizeof(float);
    float* pinned = static_cast<float*>(s.device->allocate_pinned(3 * kBytes).value());
    float *from = pinned, *ring = pinned + kCount, *to = ring + kCount;
    auto* memory = static_cast<float*>(s.memory(kBytes));
    uint32_t turn = 0;
    for (const bool spins : {true, false}) {
      for (const size_t count : {1, 1000, 4096, 8192}) {  // the last is no short work
        for (const size_t shift : {0, 1}) {               // of alignment
          ++turn;
          const size_t n = count - shift;
          for (size_t i = 0; i < kCount; ++i) from[i] = static_cast<float>(i + turn);
          std::fill(ring, ring + 2 * kCount, -1.F);
          const auto copy = [](float* dst, const float* src, size_t elements) {
            StreamWork work{.kind = Kind::Copy};
            work.reduction.dst = dst;
            work.reduction.srcs[0] = src;
            work.reduction.n_srcs = 1;
            work.reduction.count = elements * sizeof(float);
            return work;
          };
          StreamWork add{.kind = Kind::Reduce};
          add.reduction = {.dst = to,
                           .srcs = {memory + shift, from},
                           .n_srcs = 2,
                           .count = n,
                           .type = DataType::Float32,
                           .op = RedOp::Sum};
          const std::vector<StreamWork> work = {
              copy(memory, from, count),
              copy(ring, memory + shift, n),
              {.kind = Kind::Write, .flag = &flags[0], .value = turn},
              {.kind = Kind::Wait, .flag = &flags[1], .value = turn},
              add,
              copy(ring, to, n),
              {.kind = Kind::Write, .flag = &flags[0], .value = turn}};
          flags[0].word.store(turn - 1);
          auto stream = s.stream();
          REQUIRE(s.device->run(*stream, work, spins).ok());
          REQUIRE(s.reaches(flags[0], turn));
          CHECK(std::memcmp(ring, from + shift, n * sizeof(float)) == 0);
          flags[0].word.store(turn - 1);
          flags[1].word.store(turn, std::memory_order_release);
          REQUIRE(s.reaches(flags[0], turn));
          for (size_t i = 0; i < n; ++i) REQUIRE(ring[i] == from[i] + from[i + shift]);
        }
      }
    }
    s.device->free(memory);
    s.device->free_pinned(pinned);
    s.device->free_pinned(flags);
  }
}

TEST_CASE("pinned memory is a source and a target of copies") {
  for (const Kind kind : kinds()) {
    Subject s(kind);
    CAPTURE(s.name);
    Flag* flag = s.flags(1);
    auto pinned = s.device->allocate_pinned(1000);
    REQUIRE(pinned.ok());
    std::memset(pinned.value(), 7, 500);
    void* memory = s.memory(500);
    auto* half = static_cast<std::byte*>(pinned.value()) + 500;
    {
      auto stream = s.stream();
      CHECK(s.device->copy(*stream, memory, pinned.value(), 500).ok());
      CHECK(s.device->copy(*stream, half, memory, 500).ok());
      CHECK(s.device->write_flag(*stream, *flag, 1).ok());
      REQUIRE(s.reaches(*flag, 1));
    }
    CHECK(std::memcmp(pinned.value(), half, 500) == 0);
    s.device->free(memory);
    s.device->free_pinned(pinned.value());
    s.device->free_pinned(flag);
  }
}

TEST_CASE("a stream waits for the host's flag, and the host for the stream's") {
  for (const Kind kind : kinds()) {
    Subject s(kind);
    CAPTURE(s.name);
    Flag* flags = s.flags(2);
    {
      auto stream = s.stream();
      for (uint32_t i = 1; i <= 20; ++i) {
        CHECK(s.device->wait_flag(*stream, flags[0], i).ok());
        CHECK(s.device->write_flag(*stream, flags[1], i).ok());
      }
      CHECK_FALSE(s.reaches(flags[1], 1, kShort));
      for (uint32_t i = 1; i <= 20; ++i) {
        flags[0].word.store(i, std::memory_order_release);
        REQUIRE(s.reaches(flags[1], i));
        CHECK(flags[1].word.load() == i);
      }
    }
    s.device->free_pinned(flags);
  }
}

TEST_CASE("abort's value and cyclic counters release waits") {
  for (const Kind kind : kinds()) {
    Subject s(kind);
    CAPTURE(s.name);
    Flag* flags = s.flags(2);
    {
      auto stream = s.stream();
      for (uint32_t i = 1; i <= 100; ++i)
        CHECK(s.device->wait_flag(*stream, flags[0], i * 1000).ok());
      CHECK(s.device->write_flag(*stream, flags[1], 1).ok());
      CHECK_FALSE(s.reaches(flags[1], 1, kShort));
      flags[0].word.store(kFlagAborted, std::memory_order_release);
      REQUIRE(s.reaches(flags[1], 1));
      // 3 comes after 2^32 - 3.
      flags[0].word.store(0xfffffffdU, std::memory_order_release);
      CHECK(s.device->wait_flag(*stream, flags[0], 3).ok());
      CHECK(s.device->write_flag(*stream, flags[1], 2).ok());
      CHECK_FALSE(s.reaches(flags[1], 2, kShort));
      flags[0].word.store(3, std::memory_order_release);
      REQUIRE(s.reaches(flags[1], 2));
    }
    s.device->free_pinned(flags);
  }
}

TEST_CASE("events order streams, and a wait is for the record before it") {
  for (const Kind kind : kinds()) {
    Subject s(kind);
    CAPTURE(s.name);
    Flag* flags = s.flags(4);
    {
      auto a = s.stream(), b = s.stream(), c = s.stream();
      auto event = s.event();
      // Nothing waits for an event that was never recorded.
      CHECK(s.device->wait(*a, *event).ok());
      CHECK(s.device->write_flag(*a, flags[0], 1).ok());
      REQUIRE(s.reaches(flags[0], 1));
      // b waits for a, which the host holds; the event's later record on c changes nothing.
      CHECK(s.device->wait_flag(*a, flags[1], 1).ok());
      CHECK(s.device->record(*event, *a).ok());
      CHECK(s.device->wait(*b, *event).ok());
      CHECK(s.device->write_flag(*b, flags[2], 1).ok());
      CHECK(s.device->record(*event, *c).ok());
      CHECK(s.device->write_flag(*c, flags[3], 1).ok());
      REQUIRE(s.reaches(flags[3], 1));
      CHECK_FALSE(s.reaches(flags[2], 1, kShort));
      flags[1].word.store(1, std::memory_order_release);
      REQUIRE(s.reaches(flags[2], 1));
      event.reset();  // while tasks may hold it
      // A chain over two streams, far longer than either's delays.
      auto there = s.event(), back = s.event();
      for (uint32_t i = 2; i <= 200; ++i) {
        CHECK(s.device->record(*there, *a).ok());
        CHECK(s.device->wait(*b, *there).ok());
        CHECK(s.device->write_flag(*b, flags[2], i).ok());
        CHECK(s.device->record(*back, *b).ok());
        CHECK(s.device->wait(*a, *back).ok());
      }
      CHECK(s.device->write_flag(*a, flags[0], 2).ok());
      REQUIRE(s.reaches(flags[0], 2));
      CHECK(flags[2].word.load() == 200);
    }
    s.device->free_pinned(flags);
  }
}

TEST_CASE("reductions equal the reference for every type, operator and odd count") {
  for (const Kind kind : kinds()) {
    Subject s(kind);
    CAPTURE(s.name);
    std::mt19937_64 random(11);
    Flag* flag = s.flags(1);
    auto stream = s.stream();
    uint32_t turn = 0;
    const auto run = [&](DataType type, RedOp op, size_t count, int n_srcs, int alias) {
      const size_t bytes = count * size_of(type);
      std::vector<Bytes> sources;
      std::vector<const void*> host;
      Reduction r{.n_srcs = n_srcs, .count = count, .type = type, .op = op};
      r.divisor = static_cast<uint32_t>(n_srcs);
      r.factor = fake::element_of(type, 2.5);
      const std::vector<Factor> factors(static_cast<size_t>(n_srcs), r.factor);
      for (int i = 0; i < n_srcs; ++i) {
        sources.push_back(fake::random_elements(random, type, count));
        void* memory = s.memory(bytes);
        s.upload(memory, sources.back());
        r.srcs[i] = memory;
      }
      for (const Bytes& source : sources) host.push_back(source.data());
      r.dst = alias < 0 ? s.memory(bytes) : const_cast<void*>(r.srcs[alias]);
      Bytes expected(bytes);
      fake::reference_reduce(expected.data(), host, count, type, op, r.divisor, factors.data());
      REQUIRE(s.device->reduce(*stream, r).ok());
      REQUIRE(s.device->write_flag(*stream, *flag, ++turn).ok());
      REQUIRE(s.reaches(*flag, turn));
      CHECK(s.download(r.dst, bytes) == expected);
      if (alias < 0) s.device->free(r.dst);
      for (int i = 0; i < n_srcs; ++i) s.device->free(const_cast<void*>(r.srcs[i]));
    };
    for (DataType type : fake::kTypes)
      for (RedOp op : fake::ops_of(type)) {
        run(type, op, 0, 2, -1);
        run(type, op, 1, 3, -1);
        run(type, op, 1001, 2, static_cast<int>(random() % 2));
        run(type, op, 333, 16, -1);
      }
    run(DataType::Float32, RedOp::Sum, 1'000'003, 3, 0);  // several pieces, in place
    run(DataType::BFloat16, RedOp::Avg, 600'001, 2, 1);
    stream.reset();
    s.device->free_pinned(flag);
  }
}

TEST_CASE("a host function runs in its place in the stream") {
  for (const Kind kind : kinds()) {
    Subject s(kind);
    CAPTURE(s.name);
    auto made = s.device->allocate_pinned(64);
    REQUIRE(made.ok());
    auto* number = static_cast<uint32_t*>(made.value());
    void* memory = s.memory(64);
    Flag* flags = s.flags(2);
    {
      auto stream = s.stream();
      const auto twice = [](void* argument) { *static_cast<uint32_t*>(argument) *= 2; };
      *number = 21;
      CHECK(s.device->wait_flag(*stream, flags[0], 1).ok());
      CHECK(s.device->call_host(*stream, twice, number).ok());
      CHECK(s.device->copy(*stream, memory, number, 4).ok());
      CHECK(s.device->call_host(*stream, twice, number).ok());
      CHECK(s.device->write_flag(*stream, flags[1], 1).ok());
      CHECK_FALSE(s.reaches(flags[1], 1, kShort));
      CHECK(*number == 21);
      flags[0].word.store(1, std::memory_order_release);
      REQUIRE(s.reaches(flags[1], 1));
      CHECK(*number == 84);
      uint32_t copied = 0;
      std::memcpy(&copied, s.download(memory, 4).data(), 4);
      CHECK(copied == 42);
    }
    s.device->free(memory);
    s.device->free_pinned(number);
    s.device->free_pinned(flags);
  }
}

TEST_CASE("bad arguments are refused") {
  for (const Kind kind : kinds()) {
    Subject s(kind);
    CAPTURE(s.name);
    if ((s.device->capabilities() & kDefaultStream) == 0)
      CHECK(s.device->wrap_stream(nullptr).status().code() == ErrorCode::InvalidArgument);
    CHECK_FALSE(s.device->allocate(SIZE_MAX - 100).ok());
    auto stream = s.stream();
    Reduction r;
    CHECK(s.device->reduce(*stream, r).code() == ErrorCode::InvalidArgument);
    r.n_srcs = Reduction::kMaxSources + 1;
    CHECK(s.device->reduce(*stream, r).code() == ErrorCode::InvalidArgument);
    r.n_srcs = 1;
    r.op = RedOp::Avg;
    r.divisor = 0;
    CHECK(s.device->reduce(*stream, r).code() == ErrorCode::InvalidArgument);
  }
  int no_stream = 0;
  CHECK_FALSE(make_host_device()->wrap_stream(&no_stream).ok());
}

TEST_CASE("a wrapped stream is the same queue as the user's") {
  for (const Kind kind : kinds()) {
    Subject s(kind);
    CAPTURE(s.name);
    Flag* flags = s.flags(2);
    {
      auto mine = s.stream();
      auto wrapped = s.device->wrap_stream(mine->native());
      REQUIRE(wrapped.ok());
      CHECK(s.device->wait_flag(*mine, flags[0], 1).ok());
      CHECK(s.device->write_flag(**wrapped, flags[1], 1).ok());
      CHECK_FALSE(s.reaches(flags[1], 1, kShort));
      flags[0].word.store(1, std::memory_order_release);
      REQUIRE(s.reaches(flags[1], 1));
    }
    s.device->free_pinned(flags);
  }
}

TEST_CASE("a stream that was just destroyed is none, though its work still runs") {
  auto device = make_host_device();
  Flag flag;
  auto mine = device->create_stream().value();
  void* native = mine->native();
  REQUIRE(device->wait_flag(*mine, flag, 1).ok());
  auto wrapped = device->wrap_stream(native).value();
  mine.reset();
  CHECK(device->wrap_stream(native).status().code() == ErrorCode::InvalidArgument);
  wrapped.reset();
  device->progress();
  CHECK(device->wrap_stream(native).status().code() == ErrorCode::InvalidArgument);
  flag.word.store(1, std::memory_order_release);
  device->progress();
}

TEST_CASE("streams come and go on other threads while the device advances") {
  for (const Kind kind : kinds()) {
    Subject s(kind);
    CAPTURE(s.name);
    constexpr int kThreads = 3, kEach = 30;
    Flag* flags = s.flags(kThreads);
    std::vector<fake::Thread> users;
    for (int t = 0; t < kThreads; ++t)
      users.emplace_back([&s, flags, t] {
        for (uint32_t i = 1; i <= kEach; ++i) {
          auto stream = s.device->create_stream();
          (void)s.device->write_flag(**stream, flags[t], i);
          stream.value().reset();  // its work is done nevertheless
          const TimePoint end = steady_clock().now() + kDeadline;
          while (!flags[t].reached(i) && steady_clock().now() < end) std::this_thread::yield();
        }
      });
    bool all = true;
    for (int t = 0; t < kThreads; ++t) all &= s.reaches(flags[t], kEach);
    for (auto& user : users) user.join();
    CHECK(all);
    s.device->free_pinned(flags);
  }
}
