#include "device/host/stream_tasks.h"

#include <algorithm>

namespace hetccl::device {

namespace {

// Copies of at least this size bypass the caches, which would keep little of them.
constexpr size_t kMuch = size_t{1} << 20;

struct CopyTask {
  const TaskQueue* queue;
  std::byte* dst;
  const std::byte* src;
  size_t bytes;
  Caching caching;

  TaskState operator()() {
    const size_t piece = std::min(bytes, queue->piece_bytes());
    queue->copy(queue->host_address(dst), queue->host_address(src), piece, caching);
    dst += piece;
    src += piece;
    bytes -= piece;
    return bytes == 0 ? TaskState::Done : TaskState::Advanced;
  }
};

struct CopiesTask {
  const TaskQueue* queue;
  std::shared_ptr<const std::vector<Copy>> copies;
  Caching caching;
  size_t next = 0;

  TaskState operator()() {
    std::vector<Copy> some;
    size_t bytes = 0;
    for (; next < copies->size() && bytes < queue->piece_bytes(); ++next) {
      const Copy& one = (*copies)[next];
      some.push_back({queue->host_address(one.dst), queue->host_address(one.src), one.bytes});
      bytes += one.bytes;
    }
    queue->copy(some, caching);
    return next == copies->size() ? TaskState::Done : TaskState::Advanced;
  }
};

struct ReduceTask {
  const TaskQueue* queue;
  size_t done;
  Reduction whole;

  TaskState operator()() {
    const size_t element = size_of(whole.type);
    const auto sources = static_cast<size_t>(whole.n_srcs);
    if (whole.encoded != 0) return reduce_some_encoded();
    const size_t count = std::min(whole.count - done, queue->piece_bytes() / element / sources);
    const void* srcs[Reduction::kMaxSources];
    Factor factors[Reduction::kMaxSources];
    for (size_t s = 0; s < sources; ++s) {
      srcs[s] = queue->host_address(static_cast<const std::byte*>(whole.srcs[s]) + done * element);
      factors[s] = whole.factor;
    }
    queue->reduce(queue->host_address(static_cast<std::byte*>(whole.dst) + done * element), srcs,
                  whole.n_srcs, count, whole.type, whole.op, whole.divisor, factors, whole.caching,
                  whole.threads);
    done += count;
    return done == whole.count ? TaskState::Done : TaskState::Advanced;
  }

  TaskState reduce_some_encoded() {
    const size_t element = size_of(whole.type), sources = static_cast<size_t>(whole.n_srcs);
    const size_t piece = queue->piece_bytes() / element / sources;
    const size_t count =
        std::min(whole.count - done, piece / whole.encoding.block * whole.encoding.block);
    Reduction here = whole;
    for (size_t s = 0; s < sources; ++s) here.srcs[s] = queue->host_address(whole.srcs[s]);
    here.dst = queue->host_address(whole.dst);
    if (whole.residual != nullptr) here.residual = queue->host_address(whole.residual);
    queue->reduce_encoded(here, done, count);
    done += count;
    return done == whole.count ? TaskState::Done : TaskState::Advanced;
  }
};

}  // namespace

void push_wait_flag(TaskQueue& queue, const Flag& flag, uint32_t value) {
  queue.push([&flag, value] { return flag.reached(value) ? TaskState::Done : TaskState::Pending; });
}

void push_write_flag(TaskQueue& queue, Flag& flag, uint32_t value) {
  queue.push([&flag, value] {
    flag.word.store(value, std::memory_order_release);
    return TaskState::Done;
  });
}

void push_copy(TaskQueue& queue, void* dst, const void* src, size_t bytes) {
  const Caching caching = bytes >= kMuch ? Caching::Bypass : Caching::Keep;
  queue.push(CopyTask{&queue, static_cast<std::byte*>(dst), static_cast<const std::byte*>(src),
                      bytes, caching});
}

// Splits off long ones, because each exceeds what one poll may copy.
void push_copies(TaskQueue& queue, std::span<const Copy> copies) {
  auto together = std::make_shared<std::vector<Copy>>();
  size_t bytes = 0;
  for (const Copy& one : copies) {
    if (one.bytes > kMuch) {
      push_copy(queue, one.dst, one.src, one.bytes);
    } else {
      together->push_back(one);
      bytes += one.bytes;
    }
  }
  const Caching caching = bytes >= kMuch ? Caching::Bypass : Caching::Keep;
  if (!together->empty()) queue.push(CopiesTask{&queue, std::move(together), caching});
}

void push_call(TaskQueue& queue, void (*function)(void*), void* argument) {
  queue.push([function, argument] {
    function(argument);
    return TaskState::Done;
  });
}

void push_reduce(TaskQueue& queue, const Reduction& reduction) {
  if (reduction.count > 0) queue.push(ReduceTask{&queue, 0, reduction});
}

void HostEvent::record(TaskQueue& queue) {
  last_.reset();
  if (next_ == points_.size()) next_ = 0;
  const auto oldest = points_.begin() + static_cast<std::ptrdiff_t>(next_);
  if (points_.empty() || oldest->use_count() > 1)
    points_.insert(oldest, std::make_shared<std::atomic<bool>>());
  last_ = points_[next_++];
  last_->store(false, std::memory_order_relaxed);
  queue.push([point = last_] {
    point->store(true, std::memory_order_release);
    return TaskState::Done;
  });
}

void HostEvent::wait(TaskQueue& queue) const {
  if (!last_) return;
  queue.push([point = last_] {
    return point->load(std::memory_order_acquire) ? TaskState::Done : TaskState::Pending;
  });
}

}  // namespace hetccl::device
