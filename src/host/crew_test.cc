#include "host/crew.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "base/reduce.h"
#include "fake/no_threads.h"
#include "fake/thread.h"

namespace hetccl {
namespace {

std::vector<float> numbers(size_t count, uint32_t seed) {
  std::vector<float> list(count);
  for (float& one : list) {
    seed = seed * 1'664'525U + 1'013'904'223U;
    one = static_cast<float>(seed >> 8U) / 65'536.0F - 100.0F;
  }
  return list;
}

}  // namespace

TEST_CASE("a crew does every part once, and on several threads") {
  for (const int threads : {1, 2, 5, 100}) {
    Crew crew(threads);
    CHECK(crew.threads() == std::min(threads, Crew::kMaxThreads));
    std::atomic<int> met{0};
    std::set<std::thread::id> ids;
    std::mutex mutex;
    // Runs as many parts at once as threads; each waits for the others.
    crew.share(static_cast<size_t>(crew.threads()), [&](size_t) {
      ++met;
      while (met.load() < crew.threads()) std::this_thread::yield();
      std::lock_guard lock(mutex);
      ids.insert(std::this_thread::get_id());
    });
    CHECK(static_cast<int>(ids.size()) == crew.threads());
    for (const size_t parts : {size_t{0}, size_t{1}, size_t{2}, size_t{1000}, size_t{65'535}}) {
      std::vector<std::atomic<int>> done(parts);
      crew.share(parts, [&](size_t part) { ++done[part]; });
      CHECK(std::all_of(done.begin(), done.end(), [](const auto& times) { return times == 1; }));
    }
  }
}

TEST_CASE("few of a crew reduce with the same bits as all") {
  constexpr size_t kCount = 300'001;
  const std::vector<float> a = numbers(kCount, 1), b = numbers(kCount, 2);
  const void* const sources[] = {a.data(), b.data()};
  const Factor factors[2] = {};
  Crew crew(4);
  std::vector<float> expected(kCount), got(kCount);
  hetccl::reduce(expected.data(), sources, 2, kCount, DataType::Float32, RedOp::Sum, 1, factors);
  for (const int most : {0, 1, 2, 3, 4, 100}) {
    std::fill(got.begin(), got.end(), 0.F);
    crew.reduce(got.data(), sources, 2, kCount, DataType::Float32, RedOp::Sum, 1, factors,
                Caching::Keep, most);
    CHECK(got == expected);
  }
}

TEST_CASE("a crew that sleeps is woken") {
  Crew crew(4);
  for (const auto pause : {0, 50, 150, 1000, 20'000}) {
    std::this_thread::sleep_for(std::chrono::microseconds(pause));
    std::atomic<int> met{0};
    crew.share(4, [&](size_t) {
      ++met;
      while (met.load() < 4) std::this_thread::yield();
    });
    CHECK(met == 4);
  }
}

TEST_CASE("copies and reductions of a crew have the bits of one thread's") {
  Crew crew(4);
  const float scale[] = {0.5F, 3.0F, -2.0F};
  Factor factors[3] = {};
  for (size_t s = 0; s < 3; ++s) std::memcpy(factors[s].element, &scale[s], sizeof scale[s]);
  for (const size_t count :
       {size_t{0}, size_t{1}, size_t{9'999}, size_t{100'003}, size_t{1} << 20}) {
    const std::vector<float> a = numbers(count, 1), b = numbers(count, 2), c = numbers(count, 3);
    const void* srcs[] = {a.data(), b.data(), c.data()};
    for (const Caching caching : {Caching::Keep, Caching::Bypass}) {
      std::vector<float> copied(count);
      crew.copy(copied.data(), a.data(), count * sizeof(float), caching);
      CHECK(copied == a);
    }
    for (const RedOp op : {RedOp::Sum, RedOp::Avg, RedOp::PreMulSum}) {
      for (const Caching caching : {Caching::Keep, Caching::Bypass}) {
        std::vector<float> shared(a), alone(count);
        const void* in_place[] = {shared.data(), b.data(), c.data()};
        crew.reduce(shared.data(), in_place, 3, count, DataType::Float32, op, 3, factors, caching);
        reduce(alone.data(), srcs, 3, count, DataType::Float32, op, 3, factors);
        CHECK(shared == alone);
      }
    }
    std::vector<uint8_t> narrow(count * sizeof(float)), one(narrow);
    crew.reduce(narrow.data(), srcs, 3, narrow.size(), DataType::Uint8, RedOp::Avg, 3, factors);
    reduce(one.data(), srcs, 3, one.size(), DataType::Uint8, RedOp::Avg, 3, factors);
    CHECK(narrow == one);
  }
}

TEST_CASE("a crew copies many pieces at once") {
  Crew crew(4);
  std::mt19937 random(1);
  for (int i = 0; i < 50; ++i) {
    const std::vector<float> source = numbers(500'000, static_cast<uint32_t>(random()));
    std::vector<float> target(source.size()), expected(source.size());
    std::vector<Copy> copies;
    const size_t longest = size_t{1} << random() % 20;
    for (size_t begin = 0; begin < source.size() && copies.size() < 40;) {
      const size_t count = std::min(source.size() - begin, random() % longest);
      copies.push_back({&target[begin], &source[begin], count * sizeof(float)});
      std::copy_n(&source[begin], count, &expected[begin]);
      begin += count + random() % 100;
    }
    crew.copy(copies, random() % 2 == 0 ? Caching::Keep : Caching::Bypass);
    REQUIRE(target == expected);
  }
  crew.copy({}, Caching::Keep);
}

TEST_CASE("a crew reduces more sources than it shares out") {
  Crew crew(2);
  const std::vector<float> a = numbers(200'000, 1);
  const std::vector<const void*> srcs(20, a.data());
  std::vector<float> shared(a.size()), alone(a.size());
  crew.reduce(shared.data(), srcs.data(), 20, a.size(), DataType::Float32, RedOp::Sum, 1, nullptr);
  reduce(alone.data(), srcs.data(), 20, a.size(), DataType::Float32, RedOp::Sum, 1, nullptr);
  CHECK(shared == alone);
}

TEST_CASE("crews come and go") {
  // Starting and ending threads is slow under a sanitizer.
#if defined(HETCCL_UNDER_TSAN) || defined(HETCCL_UNDER_ASAN)
  constexpr int kCrews = 1'000;
#else
  constexpr int kCrews = 20'000;
#endif
  std::atomic<int> parts{0};
  for (int i = 0; i < kCrews; ++i) {
    Crew crew(3);
    crew.share(4, [&](size_t) { ++parts; });
  }
  CHECK(parts == 4 * kCrews);
}

TEST_CASE("several threads use a crew at once") {
  Crew crew(3);
  std::vector<fake::Thread> users;
  std::atomic<int> wrong{0};
  for (uint32_t user = 0; user < 3; ++user) {
    users.emplace_back([&, user] {
      const std::vector<float> source = numbers(100'000, user);
      for (int round = 0; round < 20; ++round) {
        std::vector<float> copied(source.size());
        crew.copy(copied.data(), source.data(), source.size() * sizeof(float));
        if (copied != source) ++wrong;
      }
    });
  }
  for (auto& user : users) user.join();
  CHECK(wrong == 0);
}

TEST_CASE("a crew's limit counts at any time, and is never raised") {
  Crew crew(6);
  crew.limit(3);
  CHECK(crew.threads() == 3);
  crew.limit(5);
  CHECK(crew.threads() == 3);
  crew.share(100, [](size_t) {});
  crew.limit(2);
  CHECK(crew.threads() == 2);
  for (int round = 0; round < 10; ++round) {
    std::set<std::thread::id> ids;
    std::mutex mutex;
    crew.share(100, [&](size_t) {
      std::lock_guard lock(mutex);
      ids.insert(std::this_thread::get_id());
    });
    CHECK(ids.size() <= 2);
  }
  crew.limit(0);
  CHECK(crew.threads() == 1);
}

TEST_CASE("more parts than can be counted are done alone") {
  Crew crew(2);
  int done = 0;
  crew.share(70'000, [&](size_t) { ++done; });
  CHECK(done == 70'000);
}

TEST_CASE("a crew without threads copies alone") {
  const fake::NoThreads none;
  Crew crew(4);
  const std::vector<std::byte> source(size_t{4} << 20U, std::byte{7});
  std::vector<std::byte> target(source.size());
  crew.copy(target.data(), source.data(), source.size());
  CHECK(target == source);
  CHECK(crew.threads() == 1);
}

}  // namespace hetccl
