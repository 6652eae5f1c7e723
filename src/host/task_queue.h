// A cooperative FIFO of tasks: the implementation of a `host` device's stream, and the native
// stream that ccl/host takes (as NCCL takes cudaStream_t). The thread that drives the progress
// engine polls it; nothing in it ever blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <span>
#include <type_traits>
#include <utility>

#include "base/copy.h"
#include "base/reduce.h"
#include "base/types.h"

namespace hetccl {

class Crew;

enum class TaskState {
  Pending,   ///< waits for an outside event: poll again later
  Advanced,  ///< did a bounded piece of work (`TaskQueue::piece_bytes`) and has more
  Done,
};

class TaskQueue {
 public:
  /// The most bytes of captures that a task may have: tasks are stored in place, so that pushing
  /// does not allocate.
  static constexpr size_t kTaskBytes = 232;
  /// Maps device memory to where a task can access it: the identity on real hosts. The tests'
  /// asynchronous fake device has addresses that nobody else can read, and maps them to real
  /// memory.
  using AddressMap = void* (*)(void* context, const void* device_address);

  TaskQueue() : TaskQueue(nullptr) {}
  /// `crew` (may be null) helps with large copies and reductions; it must outlive the queue.
  explicit TaskQueue(Crew* crew);
  TaskQueue(AddressMap map, void* context, Crew* crew = nullptr);
  ~TaskQueue();
  TaskQueue(const TaskQueue&) = delete;
  TaskQueue& operator=(const TaskQueue&) = delete;

  /// Appends `task`, a callable `TaskState()` that is polled until Done, in FIFO order.
  /// Thread-safe. Only allocates while the queue grows beyond its longest so far.
  template <typename Task>
  void push(Task task) {
    static_assert(sizeof(Task) <= kTaskBytes && std::is_nothrow_move_constructible_v<Task>);
    std::lock_guard lock(mutex_);
    Slot* slot = grow();
    new (slot->storage) Task(std::move(task));
    slot->poll = [](void* storage) { return (*std::launder(static_cast<Task*>(storage)))(); };
    slot->destroy = [](void* storage) { std::launder(static_cast<Task*>(storage))->~Task(); };
    commit();
  }

  /// Runs tasks from the front until one is pending, or has advanced without finishing. Returns
  /// true if anything moved. One thread at a time.
  bool poll();
  [[nodiscard]] bool empty() const;
  /// Return how many tasks were appended, and how many are done.
  [[nodiscard]] uint64_t pushed() const;
  [[nodiscard]] uint64_t finished() const;
  template <typename T>
  [[nodiscard]] T* host_address(T* device_address) const {
    return static_cast<T*>(map_(map_context_, device_address));
  }

  /// The bytes that one poll of a task may copy per thread of the crew, so that one thread can
  /// drive many queues.
  static constexpr size_t kPieceBytes = size_t{1} << 20;
  [[nodiscard]] size_t piece_bytes() const;
  /// Like hetccl::copy and reduce (base/copy.h, base/reduce.h), on host addresses, with the crew's
  /// help.
  void copy(void* dst, const void* src, size_t bytes, Caching caching = Caching::Keep) const;
  void copy(std::span<const Copy> copies, Caching caching = Caching::Keep) const;
  void reduce(void* dst, const void* const* srcs, int n_srcs, size_t count, DataType type, RedOp op,
              Divisor divisor, const Factor* factors, Caching caching = Caching::Keep,
              int most_threads = 0) const;
  /// Like hetccl::reduce_encoded (base/encoding.h).
  void reduce_encoded(const Reduction& reduction, size_t begin, size_t count) const;

 private:
  struct Slot {
    alignas(std::max_align_t) std::byte storage[kTaskBytes];
    TaskState (*poll)(void*);
    void (*destroy)(void*);
  };
  struct Chunk;
  Slot* grow();   // returns the slot behind the last, adding a chunk if needed
  void commit();  // publishes that slot

  mutable std::mutex mutex_;
  AddressMap map_;
  void* map_context_;
  Crew* crew_;
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace hetccl
