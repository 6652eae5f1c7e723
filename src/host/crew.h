// Threads that help with one thread's large copies and reductions of host memory, because one core
// reaches only a fraction of the memory's bandwidth.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <thread>
#include <type_traits>
#include <vector>

#include "base/copy.h"
#include "base/cores.h"
#include "base/reduce.h"
#include "base/types.h"

namespace hetccl {

/// Thread-safe: a thread that finds it busy with another's work works alone. Its threads start with
/// the first work worth sharing, and sleep while there is none.
class Crew {
 public:
  static constexpr int kMaxThreads = kMaxHostThreads;

  /// `threads` work at once, the caller included; 1 starts none.
  explicit Crew(int threads);
  ~Crew();
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  [[nodiscard]] int threads() const { return threads_.load(std::memory_order_relaxed); }
  /// Lowers the number of threads to `threads`, for good. Less than 1 counts as 1.
  void limit(int threads);
  /// Ends its threads; they restart with the next work.
  void rest();

  /// Copies like memcpy, or like copy_past_caches (base/copy.h).
  void copy(void* dst, const void* src, size_t bytes, Caching caching = Caching::Keep);
  /// Makes all copies, in any order. They must not overlap.
  void copy(std::span<const Copy> copies, Caching caching = Caching::Keep);
  /// Reduces like hetccl::reduce (base/reduce.h), with the same bits, by at most `most` threads; 0:
  /// all.
  void reduce(void* dst, const void* const* srcs, int n_srcs, size_t count, DataType type, RedOp op,
              Divisor divisor, const Factor* factors, Caching caching = Caching::Keep,
              int most = 0);

  /// Like hetccl::reduce_encoded (base/encoding.h), by at most `reduction.threads` threads.
  void reduce_encoded(const Reduction& reduction, size_t begin, size_t count);

  /// Calls `work(part)` once for each part below `n_parts`, on any of the threads (on this one if
  /// there are more than 65,535 parts). Returns when all are done.
  template <typename Work>
  void share(size_t n_parts, Work&& work) {
    run(
        n_parts,
        [](void* w, size_t part) { (*static_cast<std::remove_reference_t<Work>*>(w))(part); },
        &work);
  }

 private:
  [[nodiscard]] size_t all_parts() const;  // of work for all threads
  using Work = void (*)(void* context, size_t part);
  // The parts not begun: n_parts and the next one, with a number that distinguishes this work from
  // others.
  struct Open {
    uint32_t number = 0;
    uint16_t n_parts = 0;
    uint16_t next = 0;
  };

  void run(size_t n_parts, Work work, void* context);
  bool run_part();
  void start();
  void end();
  void help();

  std::atomic<int> threads_;
  std::mutex owner_;  // held while a thread shares its work
  Work work_ = nullptr;
  void* context_ = nullptr;
  alignas(64) std::atomic<Open> open_{};
  alignas(64) std::atomic<uint32_t> finished_{0};  // finished parts
  alignas(64) std::atomic<uint32_t> calls_{0};     // helpers sleep on it
  std::atomic<bool> stop_{false};
  std::vector<std::thread> helpers_;
};

}  // namespace hetccl
