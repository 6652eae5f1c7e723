// Code that the programs of `make bench` share: timing in batches that all ranks begin together,
// and the JSON that rank 0 prints.
//
// A `Ranks` has `rank()`, `size()`, `barrier()` and `slowest(double*, n)`, which leaves on every
// rank the greatest of all ranks' values.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace bench {

constexpr int kWarmUps = 2;

inline double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Memory of its own pages, all of them written.
class Buffer {
 public:
  explicit Buffer(size_t floats, float value = 0)
      : floats_(floats), data_(static_cast<float*>(std::aligned_alloc(4096, bytes())), std::free) {
    if (data_ == nullptr) std::abort();
    fill(value);
  }
  [[nodiscard]] float* data() const { return data_.get(); }
  [[nodiscard]] size_t size() const { return floats_; }
  [[nodiscard]] size_t bytes() const { return (floats_ * sizeof(float) + 4095) / 4096 * 4096; }
  void fill(float value) { std::fill_n(data_.get(), floats_, value); }
  [[nodiscard]] bool holds(float value) const {
    return std::all_of(data_.get(), data_.get() + floats_, [&](float x) { return x == value; });
  }

 private:
  size_t floats_;
  std::unique_ptr<float, void (*)(void*)> data_;
};

struct Times {
  double median = 0, p99 = 0;
};

inline Times summary(std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  const size_t n = seconds.size();
  return {(seconds[(n - 1) / 2] + seconds[n / 2]) / 2, seconds[std::min(n - 1, n * 99 / 100)]};
}

/// Seconds of one of `calls` calls of `run` back to back: of the slowest rank, over `batches`.
template <typename Ranks, typename Run>
Times time(Ranks& ranks, int batches, int calls, const Run& run) {
  for (int i = 0; i < kWarmUps * calls; ++i) run();
  std::vector<double> seconds;
  for (int b = 0; b < batches; ++b) {
    ranks.barrier();
    const double start = now();
    for (int i = 0; i < calls; ++i) run();
    seconds.push_back((now() - start) / calls);
  }
  ranks.slowest(seconds.data(), seconds.size());
  return summary(std::move(seconds));
}

/// Whether `here` is true on every rank.
template <typename Ranks>
bool everywhere(Ranks& ranks, bool here) {
  double wrong = here ? 0 : 1;
  ranks.slowest(&wrong, 1);
  return wrong == 0;
}

/// Rank 0's line of JSON: named results, each of them named numbers.
class Report {
 public:
  void add(const std::string& name, size_t bytes, Times times, bool right,
           const std::string& more = "") {
    char text[256];
    std::snprintf(text, sizeof text,
                  "%s\"%s\": {\"bytes\": %zu, \"seconds\": %.9g, \"p99_seconds\": %.9g, "
                  "\"right\": %s%s}",
                  text_.empty() ? "" : ", ", name.c_str(), bytes, times.median, times.p99,
                  right ? "true" : "false", more.c_str());
    text_ += text;
    right_ = right_ && right;
  }
  /// The program's exit status.
  [[nodiscard]] int finish(int rank) const {
    if (rank == 0) std::printf("{%s}\n", text_.c_str());
    return right_ ? 0 : 1;
  }

 private:
  std::string text_;
  bool right_ = true;
};

/// Float32 calls of the sizes that the arguments name in bytes: all-reduces, out of place, or
/// messages that two ranks exchange. PROGRAM all_reduce|exchange BATCHES BYTES...
template <typename Ranks>
int measure_calls(Ranks& ranks, int argc, char** argv) {
  constexpr size_t kBatchBytes = size_t{4} << 20;
  if (argc < 4) return 2;
  const bool exchanges = argv[1] == std::string_view("exchange");
  const int sum = ranks.size() * (ranks.size() + 1) / 2;
  if (exchanges && ranks.size() != 2) return 2;
  Report report;
  for (int i = 3; i < argc; ++i) {
    const size_t bytes = std::strtoull(argv[i], nullptr, 10), count = bytes / sizeof(float);
    const int calls = static_cast<int>(std::clamp<size_t>(kBatchBytes / bytes, 1, 500));
    const Buffer in(count, static_cast<float>(ranks.rank() + 1));
    Buffer out(count);
    const auto run = [&] {
      if (exchanges) {
        ranks.exchange(in.data(), out.data(), count);
      } else {
        ranks.all_reduce(in.data(), out.data(), count);
      }
    };
    const Times times = time(ranks, std::atoi(argv[2]), calls, run);
    out.fill(0);
    run();
    const int wanted = exchanges ? 2 - ranks.rank() : sum;
    report.add(argv[i], bytes, times, everywhere(ranks, out.holds(static_cast<float>(wanted))));
  }
  return report.finish(ranks.rank());
}

}  // namespace bench
