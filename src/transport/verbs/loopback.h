// A queue pair connected with itself. Through it the device copies within this process's registered
// memory, and so reaches device memory that host threads cannot access. A read through it makes the
// device's earlier writes visible to others.
#pragma once

#include <memory>

#include "base/cancel.h"
#include "transport/verbs/queue_pair.h"

namespace hetccl::transport::verbs {

/// Used by one thread at a time.
class Loopback {
 public:
  static constexpr uint32_t kRoom = 32;  ///< the most requests under way

  /// `user`: see QueuePair::Options.
  static Result<std::unique_ptr<Loopback>> create(const Port& port, const Config& config,
                                                  void* user);

  [[nodiscard]] bool has_room() const { return under_way_ < kRoom; }
  /// Begins to write `from` to `to`, whose remote key is `key`. Requests end in order.
  Status write(abi::Sge from, void* to, uint32_t key);
  /// Begins to read `from` into `to`. When it has ended, everything that the device wrote to that
  /// memory before is visible.
  Status read(abi::Sge to, const void* from, uint32_t key);
  /// Returns how many requests have ended since the last call, or SystemError if one has failed.
  Result<uint32_t> poll();
  Status arm() { return queue_->arm(); }
  [[nodiscard]] bool is_concerned(const abi::AsyncEvent& event) const {
    return queue_->is_concerned(event);
  }

  /// Waits until all requests have ended.
  Status finish(const WaitLimit& limit);

 private:
  explicit Loopback(std::unique_ptr<QueuePair> queue) : queue_(std::move(queue)) {}
  std::unique_ptr<QueuePair> queue_;
  uint32_t under_way_ = 0;
};

}  // namespace hetccl::transport::verbs
