// Threads of tests. A check that fails on one fails the test case; std::thread would end the
// program.
#pragma once

#include <doctest/doctest.h>

#include <concepts>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace hetccl::fake {

/// Runs a body, and keeps its exception, such as a failed REQUIRE. Joins at its end.
class Thread {
 public:
  Thread() = default;
  template <typename Body, typename... Arguments>
    requires(std::invocable<Body&, Arguments&...> && !std::same_as<std::decay_t<Body>, Thread>)
  explicit Thread(Body&& body, Arguments... arguments)
      : failure_(std::make_unique<std::exception_ptr>()),
        thread_(
            [failure = failure_.get(), body = std::forward<Body>(body), arguments...]() mutable {
              try {
                body(arguments...);
              } catch (...) {
                *failure = std::current_exception();
              }
            }) {}
  Thread(Thread&&) = default;
  Thread& operator=(Thread&&) = default;
  ~Thread() {
    if (!thread_.joinable()) return;
    thread_.join();
    if (*failure_) FAIL_CHECK("a thread that nobody joined has failed");
  }

  [[nodiscard]] bool joinable() const { return thread_.joinable(); }
  /// Waits for the body's end, and rethrows its exception here.
  void join() {
    thread_.join();
    if (*failure_) std::rethrow_exception(std::exchange(*failure_, nullptr));
  }

 private:
  std::unique_ptr<std::exception_ptr> failure_;
  std::thread thread_;
};

/// Runs `body(0)` to `body(n_ranks - 1)`, each on a thread, and waits for all. Then rethrows the
/// exception of the first that threw. `give_up(rank)` runs at once on the thread of a rank that has
/// thrown; it may end the waits of other ranks.
inline void on_all_ranks(int n_ranks, const std::function<void(int)>& body,
                         const std::function<void(int)>& give_up = nullptr) {
  std::mutex mutex;
  std::exception_ptr first;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < n_ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        body(rank);
      } catch (...) {
        {
          std::lock_guard lock(mutex);
          if (!first) first = std::current_exception();
        }
        if (give_up) give_up(rank);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
}

}  // namespace hetccl::fake
