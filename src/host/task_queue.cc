#include "host/task_queue.h"

#include <atomic>
#include <cstdint>

#include "base/encoding.h"
#include "host/crew.h"

namespace hetccl {

namespace {

void* identity(void*, const void* address) {
  return const_cast<void*>(address);
}

}  // namespace

struct TaskQueue::Chunk {
  static constexpr size_t kSlots = 32;
  Slot slots[kSlots];
  Chunk* next = nullptr;
};

// A singly linked list of chunks. Pushers own `tail`, `used` and `spare` under the mutex; the only
// poller owns `head` and `front`. They share `pushed`, whose release publishes a slot and the link
// to its chunk. So polling an idle queue takes no lock.
struct TaskQueue::State {
  std::atomic<uint64_t> pushed{0};
  std::atomic<uint64_t> popped{0};
  Chunk* head = nullptr;
  size_t front = 0;
  Chunk* tail = nullptr;
  size_t used = 0;
  Chunk* spare = nullptr;
};

TaskQueue::TaskQueue(Crew* crew) : TaskQueue(identity, nullptr, crew) {}

TaskQueue::TaskQueue(AddressMap map, void* context, Crew* crew)
    : map_(map), map_context_(context), crew_(crew), state_(std::make_unique<State>()) {
  state_->head = state_->tail = new Chunk;
}

TaskQueue::~TaskQueue() {
  State& s = *state_;
  while (s.head) {
    const size_t end = s.head == s.tail ? s.used : Chunk::kSlots;
    for (size_t i = s.front; i < end; ++i) s.head->slots[i].destroy(s.head->slots[i].storage);
    s.front = 0;
    delete std::exchange(s.head, s.head->next);
  }
  while (s.spare) delete std::exchange(s.spare, s.spare->next);
}

TaskQueue::Slot* TaskQueue::grow() {
  State& s = *state_;
  if (s.used == Chunk::kSlots) {
    Chunk* chunk = s.spare;
    if (chunk) {
      s.spare = chunk->next;
      chunk->next = nullptr;
    } else {
      chunk = new Chunk;
    }
    s.tail->next = chunk;
    s.tail = chunk;
    s.used = 0;
  }
  return &s.tail->slots[s.used];
}

void TaskQueue::commit() {
  State& s = *state_;
  ++s.used;
  s.pushed.store(s.pushed.load(std::memory_order_relaxed) + 1, std::memory_order_release);
}

bool TaskQueue::empty() const {
  return state_->popped.load(std::memory_order_acquire) ==
         state_->pushed.load(std::memory_order_acquire);
}

uint64_t TaskQueue::pushed() const {
  return state_->pushed.load(std::memory_order_acquire);
}

uint64_t TaskQueue::finished() const {
  return state_->popped.load(std::memory_order_acquire);
}

size_t TaskQueue::piece_bytes() const {
  return crew_ != nullptr ? kPieceBytes * static_cast<size_t>(crew_->threads()) : kPieceBytes;
}

void TaskQueue::copy(void* dst, const void* src, size_t bytes, Caching caching) const {
  if (crew_ != nullptr) return crew_->copy(dst, src, bytes, caching);
  hetccl::copy(dst, src, bytes, caching);
}

void TaskQueue::copy(std::span<const Copy> copies, Caching caching) const {
  if (crew_ != nullptr) return crew_->copy(copies, caching);
  for (const Copy& one : copies) hetccl::copy(one.dst, one.src, one.bytes, caching);
}

void TaskQueue::reduce(void* dst, const void* const* srcs, int n_srcs, size_t count, DataType type,
                       RedOp op, Divisor divisor, const Factor* factors, Caching caching,
                       int most_threads) const {
  if (crew_ != nullptr) {
    return crew_->reduce(dst, srcs, n_srcs, count, type, op, divisor, factors, caching,
                         most_threads);
  }
  hetccl::reduce(dst, srcs, n_srcs, count, type, op, divisor, factors, caching);
}

void TaskQueue::reduce_encoded(const Reduction& reduction, size_t begin, size_t count) const {
  if (crew_ != nullptr) return crew_->reduce_encoded(reduction, begin, count);
  hetccl::reduce_encoded(reduction, begin, count);
}

bool TaskQueue::poll() {
  State& s = *state_;
  bool moved = false;
  uint64_t popped = s.popped.load(std::memory_order_relaxed);
  while (popped != s.pushed.load(std::memory_order_acquire)) {
    if (s.front == Chunk::kSlots) {
      Chunk* finished = std::exchange(s.head, s.head->next);
      s.front = 0;
      std::lock_guard lock(mutex_);
      finished->next = s.spare;
      s.spare = finished;
    }
    Slot& slot = s.head->slots[s.front];
    const TaskState state = slot.poll(slot.storage);
    if (state == TaskState::Pending) return moved;
    moved = true;
    if (state == TaskState::Advanced) return true;
    slot.destroy(slot.storage);
    ++s.front;
    s.popped.store(++popped, std::memory_order_release);
  }
  return moved;
}

}  // namespace hetccl
