// The work of a cooperative stream, as tasks of its TaskQueue. Tasks find device memory through the
// queue, so the tests' asynchronous device runs them on its own memory.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "device/device.h"
#include "host/task_queue.h"

namespace hetccl::device {

void push_wait_flag(TaskQueue& queue, const Flag& flag, uint32_t value);
void push_write_flag(TaskQueue& queue, Flag& flag, uint32_t value);
void push_copy(TaskQueue& queue, void* dst, const void* src, size_t bytes);
/// The copies must not overlap.
void push_copies(TaskQueue& queue, std::span<const Copy> copies);
void push_call(TaskQueue& queue, void (*function)(void*), void* argument);
/// `reduction` must be valid.
void push_reduce(TaskQueue& queue, const Reduction& reduction);

/// An event of cooperative streams. As in CUDA, a wait is for the latest earlier record, and an
/// event that was never recorded does not block. Not thread-safe (the caller must serialise calls),
/// but its tasks run on any thread.
class HostEvent : public Event {
 public:
  void record(TaskQueue& queue);
  void wait(TaskQueue& queue) const;

 private:
  // One record. Kept by the tasks that refer to it and then reused, so that recording an event
  // repeatedly stops allocating.
  using Point = std::shared_ptr<std::atomic<bool>>;
  std::vector<Point> points_;  // a ring from `next_` on, in the order of recording
  size_t next_ = 0;
  Point last_;
};

}  // namespace hetccl::device
