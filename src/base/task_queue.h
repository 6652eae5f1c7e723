// A cooperative FIFO of tasks: what a stream of the `host` device is underneath, and the native
// stream that ccl/host takes (as cudaStream_t is for NCCL). Whoever drives the progress engine
// polls it; nothing in it ever blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <type_traits>
#include <utility>

namespace hetccl {

enum class TaskState {
  Pending,   ///< waits for something outside: poll again later
  Advanced,  ///< did a bounded piece of work (about 1 MiB at most) and has more to do
  Done,
};

class TaskQueue {
 public:
  /// Bytes of captures a task may have: tasks are stored in place, so that pushing does not
  /// allocate.
  static constexpr size_t kTaskBytes = 192;
  /// Where a task that touches device memory finds it. Identity on real hosts; the asynchronous
  /// fake device of the tests maps its addresses, which nobody else can read, to where its own
  /// threads can.
  using AddressMap = void* (*)(void* context, const void* device_address);

  TaskQueue();
  TaskQueue(AddressMap map, void* context);
  ~TaskQueue();
  TaskQueue(const TaskQueue&) = delete;
  TaskQueue& operator=(const TaskQueue&) = delete;

  /// Appends `task`: a callable `TaskState()`, polled until Done, in FIFO order. Thread-safe; takes
  /// memory only while the queue grows beyond its longest so far.
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

  /// Runs tasks from the front until one is pending, or until one has advanced without finishing.
  /// True when anything moved. One thread at a time.
  bool poll();
  [[nodiscard]] bool empty() const;
  /// Tasks appended, and tasks done, since the queue was made.
  [[nodiscard]] uint64_t pushed() const;
  [[nodiscard]] uint64_t finished() const;
  template <typename T>
  [[nodiscard]] T* host_address(T* device_address) const {
    return static_cast<T*>(map_(map_context_, device_address));
  }

 private:
  struct Slot {
    alignas(std::max_align_t) std::byte storage[kTaskBytes];
    TaskState (*poll)(void*);
    void (*destroy)(void*);
  };
  struct Chunk;
  Slot* grow();   // the slot behind the last, adding a chunk if needed
  void commit();  // makes it visible

  mutable std::mutex mutex_;
  AddressMap map_;
  void* map_context_;
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace hetccl
