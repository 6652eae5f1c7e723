// Threads that take part in one thread's large copies and reductions of host memory, since one core
// reaches but a fraction of the memory's bandwidth.
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

/// Thread-safe: whoever finds it at work for another thread works alone. Its threads start with the
/// first work worth sharing, and sleep where there is none.
class Crew {
 public:
  static constexpr int kMaxThreads = kMaxHostThreads;

  /// `threads` work at once, the caller included; 1 starts none.
  explicit Crew(int threads);
  ~Crew();
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  [[nodiscard]] int threads() const { return threads_.load(std::memory_order_relaxed); }
  /// From now on no more than that, for good. Fewer than 1 is 1.
  void limit(int threads);
  /// Ends its threads; they start again with the next work.
  void rest();

  /// As memcpy, or as copy_past_caches (base/copy.h).
  void copy(void* dst, const void* src, size_t bytes, Caching caching = Caching::Keep);
  /// All of them, in any order: what is written is not read.
  void copy(std::span<const Copy> copies, Caching caching = Caching::Keep);
  /// As hetccl::reduce (base/reduce.h), with the same bits, by at most `most` threads; 0: by all.
  void reduce(void* dst, const void* const* srcs, int n_srcs, size_t count, DataType type, RedOp op,
              Divisor divisor, const Factor* factors, Caching caching = Caching::Keep,
              int most = 0);

  /// As hetccl::reduce_encoded (base/encoding.h), by `reduction.threads` threads at most.
  void reduce_encoded(const Reduction& reduction, size_t begin, size_t count);

  /// Calls `work(part)` once for each part below `n_parts`, on any of the threads (on this one
  /// where they are more than 65,535), and returns when all are done.
  template <typename Work>
  void share(size_t n_parts, Work&& work) {
    run(
        n_parts,
        [](void* w, size_t part) { (*static_cast<std::remove_reference_t<Work>*>(w))(part); },
        &work);
  }

 private:
  [[nodiscard]] size_t all_parts() const;  // of what all threads share
  using Work = void (*)(void* context, size_t part);
  // The parts that nobody has begun: n_parts and the next one, under a number that tells this
  // work from others.
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
  std::mutex owner_;  // held while a thread has its work shared
  Work work_ = nullptr;
  void* context_ = nullptr;
  alignas(64) std::atomic<Open> open_{};
  alignas(64) std::atomic<uint32_t> finished_{0};  // parts
  alignas(64) std::atomic<uint32_t> calls_{0};     // helpers sleep on it
  std::atomic<bool> stop_{false};
  std::vector<std::thread> helpers_;
};

}  // namespace hetccl
