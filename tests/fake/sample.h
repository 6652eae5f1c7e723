// Chooses the cases of a large set for a run: a seeded sample in `make test`, all in `make soak`.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

namespace hetccl::fake {

/// A number from the environment, as HETCCL_TEST_SCALE and HETCCL_TEST_SEED.
inline uint64_t number_from(const char* variable, uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

/// HETCCL_TEST_SCALE: multiplies the number of random cases, and the samples of fixed ones.
inline uint64_t scale() {
  return std::max<uint64_t>(1, number_from("HETCCL_TEST_SCALE", 1));
}

/// The number that decides which cases a sample has: HETCCL_TEST_SAMPLE, else a new one for each
/// process. Printed, so that a failure can be repeated.
inline uint64_t sample_seed() {
  static const uint64_t seed = [] {
    const uint64_t chosen = number_from("HETCCL_TEST_SAMPLE", std::random_device()() % 10'000);
    std::printf("HETCCL_TEST_SAMPLE=%llu repeats this sample of the cases\n",
                static_cast<unsigned long long>(chosen));
    std::fflush(stdout);
    return chosen;
  }();
  return seed;
}

/// Whether this run makes case `index`: one case of each `one_in` successive ones (at a place that
/// the seed decides anew for each), and all of them where HETCCL_TEST_SCALE is `one_in` or more.
/// The same on all threads.
inline bool is_sampled(uint64_t index, uint64_t one_in) {
  if (scale() >= one_in) return true;
  std::mt19937_64 random(sample_seed() * 1'000'003 + index / one_in);
  return (index + random() % one_in) % one_in < scale();
}

/// Returns the seeds of the random cases that this run makes: a sample of 1 to `all`, as
/// `is_sampled` chooses; more seeds if HETCCL_TEST_SCALE exceeds `one_in`; only HETCCL_TEST_SEED,
/// if it is set.
inline std::vector<uint64_t> sampled_seeds(uint64_t all, uint64_t one_in = 1) {
  if (const uint64_t only = number_from("HETCCL_TEST_SEED", 0); only != 0) return {only};
  std::vector<uint64_t> seeds;
  const uint64_t last = all * std::max<uint64_t>(1, scale() / one_in);
  for (uint64_t seed = 1; seed <= last; ++seed) {
    if (is_sampled(seed - 1, one_in)) seeds.push_back(seed);
  }
  return seeds;
}

}  // namespace hetccl::fake
