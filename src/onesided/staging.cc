#include "onesided/staging.h"

#include <new>
#include <utility>

#include "base/exception.h"
#include "base/thread.h"

namespace hetccl::onesided {

namespace {

constexpr size_t kAlignment = 512;

}  // namespace

ChunkPool::~ChunkPool() {
  for (std::byte* memory : free_) device_.free_pinned(memory);
}

Status ChunkPool::reserve() {
  const std::lock_guard lock(mutex_);
  for (; n_left_ > 0; --n_left_) {
    HETCCL_ASSIGN(void* const memory, device_.allocate_pinned(chunk_bytes_));
    free_.push_back(static_cast<std::byte*>(memory));
  }
  return {};
}

ChunkPool::Chunk ChunkPool::take() {
  const std::lock_guard lock(mutex_);
  if (free_.empty()) return {};
  std::byte* const memory = free_.back();
  Chunk chunk(memory, [pool = shared_from_this()](std::byte* given) { pool->give_back(given); });
  free_.pop_back();
  return chunk;
}

void ChunkPool::give_back(std::byte* memory) {
  const std::lock_guard lock(mutex_);
  free_.push_back(memory);  // which it held before: takes no memory
}

Staging::Taken Staging::take(size_t bytes) {
  const size_t room = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  if (chunk_ == nullptr || used_ + room > pool_->chunk_bytes()) {
    ChunkPool::Chunk next = pool_->take();
    if (next == nullptr) return {};
    chunk_ = std::move(next);
    used_ = 0;
  }
  Taken taken{chunk_, chunk_.get() + used_};
  used_ += room;
  return taken;
}

Result<std::unique_ptr<Stager>> Stager::create(device::Device& device) {
  std::unique_ptr<Stager> made(new Stager(device));
  HETCCL_ASSIGN(made->stream_, device.create_stream());
  HETCCL_ASSIGN(void* const memory, device.allocate_pinned(sizeof(device::Flag)));
  made->flag_ = new (memory) device::Flag;
  HETCCL_ASSIGN(made->thread_, start_thread("hetccl stager", [self = made.get()] { self->run(); }));
  return made;
}

Stager::~Stager() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wanted_.notify_one();
  if (thread_.joinable()) thread_.join();
  if (flag_ != nullptr) device_.free_pinned(flag_);
}

uint32_t Stager::enqueue(std::vector<Piece> pieces, std::shared_ptr<device::Event> after) {
  uint32_t ticket = 0;
  {
    const std::lock_guard lock(mutex_);
    ticket = given_.load(std::memory_order_relaxed) + 1;
    jobs_.push_back({std::move(pieces), std::move(after), ticket});
    given_.store(ticket, std::memory_order_release);
  }
  wanted_.notify_one();
  return ticket;
}

Status Stager::status() const {
  const std::lock_guard lock(mutex_);
  return status_;
}

void Stager::run() {
  for (;;) {
    Job job;
    {
      std::unique_lock lock(mutex_);
      wanted_.wait(lock, [this] { return stop_ || !jobs_.empty(); });
      if (jobs_.empty()) return;
      job = std::move(jobs_.front());
      jobs_.pop_front();
    }
    Status copied;
    try {
      copied = copy(job);
    } catch (...) {
      copied = caught();
    }
    if (copied.ok()) continue;
    const std::lock_guard lock(mutex_);
    if (status_.ok()) status_ = std::move(copied);
    failed_.store(true, std::memory_order_release);
  }
}

Status Stager::copy(const Job& job) {
  if (job.after != nullptr) HETCCL_TRY(device_.wait(*stream_, *job.after));
  std::vector<Copy> together;
  for (const Piece& one : job.pieces) {
    if (one.short_together) {
      together.push_back(one.copy);
    } else {
      HETCCL_TRY(device_.copy(*stream_, one.copy.dst, one.copy.src, one.copy.bytes));
    }
  }
  HETCCL_TRY(device_.copy_all(*stream_, together));
  return device_.write_flag(*stream_, *flag_, job.ticket);
}

}  // namespace hetccl::onesided
