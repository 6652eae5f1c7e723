// Operations in flight, by number. One thread launches them in order; the engine retires them in
// order.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "exec/operation.h"

namespace hetccl::exec {

class InFlight {
 public:
  static constexpr size_t kMost = 1024;

  /// `room`: initial capacity.
  explicit InFlight(size_t room = kMost) : ring_(room) {}

  /// Returns the number that `launch` assigns next.
  [[nodiscard]] uint64_t next() const { return launched_.load(std::memory_order_relaxed); }
  /// Makes `op` visible to the engine. Sequentially consistent with the mark of an abort. If the
  /// queue may be `full`, only the engine may call this.
  uint64_t launch(Operation& op) {
    if (full()) grow();
    const uint64_t number = next();
    place(number) = &op;
    launched_.store(number + 1, std::memory_order_seq_cst);
    return number;
  }
  /// Removes the oldest operation. Called by the engine.
  Operation& retire() {
    const uint64_t number = oldest();
    retired_.store(number + 1, std::memory_order_release);
    return at(number);
  }
  [[nodiscard]] Operation& at(uint64_t number) { return *place(number); }
  [[nodiscard]] uint64_t oldest() const { return retired_.load(std::memory_order_acquire); }
  [[nodiscard]] uint64_t end() const { return launched_.load(std::memory_order_seq_cst); }
  [[nodiscard]] bool empty() const { return end() == oldest(); }
  [[nodiscard]] bool full() const { return next() - oldest() >= ring_.size(); }

 private:
  [[nodiscard]] Operation*& place(uint64_t number) { return ring_[number % ring_.size()]; }
  void grow() {
    std::vector<Operation*> larger(2 * ring_.size());
    for (uint64_t n = oldest(); n < end(); ++n) larger[n % larger.size()] = place(n);
    ring_ = std::move(larger);
  }

  std::vector<Operation*> ring_;
  std::atomic<uint64_t> launched_{0}, retired_{0};
};

}  // namespace hetccl::exec
