// The work of a cooperative stream, as tasks of its TaskQueue. They find device memory through the
// queue, so that the tests' asynchronous device runs the same tasks on memory of its own.
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
/// Copies that touch no memory of each other.
void push_copies(TaskQueue& queue, std::span<const Copy> copies);
void push_call(TaskQueue& queue, void (*function)(void*), void* argument);
/// `reduction` is valid.
void push_reduce(TaskQueue& queue, const Reduction& reduction);

/// An event of cooperative streams. As in CUDA, a wait is for the record that came last before it,
/// and an event that was never recorded holds nobody up. Not thread-safe (each call needs the
/// caller's order), but its tasks run on any thread.
class HostEvent : public Event {
 public:
  void record(TaskQueue& queue);
  void wait(TaskQueue& queue) const;

 private:
  // One record. Kept by the tasks that refer to it; reused once they are gone, so that an event
  // that is recorded again and again stops allocating.
  using Point = std::shared_ptr<std::atomic<bool>>;
  std::vector<Point> points_;  // from `next_` on, around: in the order in which they were recorded
  size_t next_ = 0;
  Point last_;
};

}  // namespace hetccl::device
