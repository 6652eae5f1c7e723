// A communicator's operations in flight, by number: launched in order by one thread, retired in
// order by the engine.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "exec/operation.h"

namespace hetccl::exec {

class InFlight {
 public:
  static constexpr size_t kMost = 1024;

  explicit InFlight(device::Device& device) : device_(device), ring_(kMost) {}

  /// An operation that is not in use. By the launching thread.
  Operation& take() {
    {
      std::lock_guard lock(mutex_);
      if (!free_.empty()) {
        Operation* op = free_.back();
        free_.pop_back();
        return *op;
      }
    }
    operations_.push_back(std::make_unique<Operation>(device_));
    return *operations_.back();
  }
  void give_back(Operation& op) {
    std::lock_guard lock(mutex_);
    free_.push_back(&op);
  }
  /// The number that `launch` gives next.
  [[nodiscard]] uint64_t next() const { return launched_.load(std::memory_order_relaxed); }
  /// Makes it visible to the engine. Sequentially consistent with an abort's mark.
  uint64_t launch(Operation& op) {
    const uint64_t number = next();
    ring_[number % kMost] = &op;
    launched_.store(number + 1, std::memory_order_seq_cst);
    return number;
  }
  /// The oldest. By the engine.
  void retire() {
    const uint64_t number = oldest();
    give_back(at(number));
    retired_.store(number + 1, std::memory_order_release);
  }
  [[nodiscard]] Operation& at(uint64_t number) { return *ring_[number % kMost]; }
  [[nodiscard]] uint64_t oldest() const { return retired_.load(std::memory_order_acquire); }
  [[nodiscard]] uint64_t end() const { return launched_.load(std::memory_order_seq_cst); }
  [[nodiscard]] bool empty() const { return end() == oldest(); }
  [[nodiscard]] bool full() const { return next() - oldest() >= kMost; }

 private:
  device::Device& device_;
  std::vector<std::unique_ptr<Operation>> operations_;  // owns them
  std::mutex mutex_;                                    // guards `free_`
  std::vector<Operation*> free_;
  std::vector<Operation*> ring_;
  std::atomic<uint64_t> launched_{0}, retired_{0};
};

}  // namespace hetccl::exec
