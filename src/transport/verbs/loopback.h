// A queue pair that is connected with itself: by it a device copies within this process's
// registered memory, to where host threads cannot, and reads what it has written before others may.
#pragma once

#include <memory>

#include "base/cancel.h"
#include "transport/verbs/queue_pair.h"

namespace hetccl::transport::verbs {

/// One thread at a time.
class Loopback {
 public:
  static constexpr uint32_t kRoom = 32;  ///< requests under way

  /// `user` as of QueuePair.
  static Result<std::unique_ptr<Loopback>> create(const Port& port, const Config& config,
                                                  void* user);

  [[nodiscard]] bool has_room() const { return under_way_ < kRoom; }
  /// Writes `from` to `to`, of which `key` is the remote key. They end in their order.
  Status write(abi::Sge from, void* to, uint32_t key);
  /// Reads from `from` into `to`: once it has ended, all that the device has written to that memory
  /// before can be seen.
  Status read(abi::Sge to, const void* from, uint32_t key);
  /// How many have ended since the last call. SystemError where one has failed.
  Result<uint32_t> poll();
  Status arm() { return queue_->arm(); }

  /// Waits until all have ended.
  Status finish(const WaitLimit& limit);

 private:
  explicit Loopback(std::unique_ptr<QueuePair> queue) : queue_(std::move(queue)) {}
  std::unique_ptr<QueuePair> queue_;
  uint32_t under_way_ = 0;
};

}  // namespace hetccl::transport::verbs
