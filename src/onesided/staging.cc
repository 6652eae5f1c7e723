#include "onesided/staging.h"

#include <algorithm>
#include <chrono>
#include <new>
#include <utility>

#include "base/clock.h"
#include "base/cpu_pause.h"
#include "base/exception.h"
#include "base/thread.h"

namespace hetccl::onesided {

namespace {

constexpr size_t kAlignment = 512;
constexpr size_t kFlagsAtOnce = 64;
// Jobs with a longer copy all go to one lane: two such copies side by side would both be late, and
// keep twice the memory.
constexpr size_t kLong = size_t{2} << 20;
// The thread spins this long for its next job before it sleeps: a short transfer after another one
// takes about as long.
constexpr auto kSpin = std::chrono::microseconds(50);

}  // namespace

ChunkPool::~ChunkPool() {
  for (std::byte* memory : free_) device_.free_pinned(memory);
}

Status ChunkPool::reserve() {
  const std::lock_guard lock(mutex_);
  free_.reserve(n_chunks_);
  for (; n_pinned_ < n_chunks_; ++n_pinned_) {
    HETCCL_ASSIGN(void* const memory, device_.allocate_pinned(chunk_bytes_));
    free_.push_back(static_cast<std::byte*>(memory));
  }
  return {};
}

// Returns the chunk outside the lock: if there is no memory for its use count, the deleter runs
// here and takes the lock.
ChunkPool::Chunk ChunkPool::take() {
  std::byte* memory = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) return {};
    memory = free_.back();
    free_.pop_back();
  }
  return {memory, [pool = shared_from_this()](std::byte* given) { pool->give_back(given); }};
}

void ChunkPool::give_back(std::byte* memory) {
  const std::lock_guard lock(mutex_);
  free_.push_back(memory);  // its capacity suffices, so this allocates nothing
}

Staging::Taken Staging::take(size_t bytes) {
  const size_t room = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  if (chunk_ == nullptr || used_ + room > pool_->chunk_bytes()) {
    chunk_.reset();
    if (live_->load() >= pool_->most_of_link()) return {};
    ChunkPool::Chunk next = pool_->take();
    if (next == nullptr) return {};
    ++*live_;
    std::byte* const memory = next.get();
    chunk_ = {memory, [held = std::move(next), live = live_](std::byte*) { --*live; }};
    used_ = 0;
  }
  Taken taken{chunk_, chunk_.get() + used_};
  used_ += room;
  return taken;
}

// If a stream has yet to write, leaks the memory.
Gates::~Gates() {
  if (!std::all_of(gates_.begin(), gates_.end(), [](const Gate& one) { return one.is_open(); }))
    return;
  for (void* memory : pinned_memory_) device_.free_pinned(memory);
}

// Reuses a word that was reached: waiters for its last value see a later value as reached too.
Result<Gates::Gate> Gates::add(device::Stream& stream) {
  const std::lock_guard lock(mutex_);
  auto gate =
      std::find_if(gates_.begin(), gates_.end(), [](const Gate& one) { return one.is_open(); });
  if (gate == gates_.end()) {
    HETCCL_ASSIGN(void* const memory, device_.allocate_pinned(kFlagsAtOnce * sizeof(device::Flag)));
    pinned_memory_.push_back(memory);
    for (size_t i = 0; i < kFlagsAtOnce; ++i)
      gates_.push_back({new (static_cast<device::Flag*>(memory) + i) device::Flag});
    gate = gates_.end() - 1;
  }
  HETCCL_TRY(device_.write_flag(stream, *gate->flag, gate->value + 1));
  ++gate->value;
  return *gate;
}

Result<std::unique_ptr<Stager>> Stager::create(device::Device& device) {
  std::unique_ptr<Stager> made(new Stager(device));
  for (Lane& lane : made->lanes_) {
    HETCCL_ASSIGN(lane.stream, device.create_stream());
    HETCCL_ASSIGN(void* const memory, device.allocate_pinned(sizeof(device::Flag)));
    lane.flag = new (memory) device::Flag;
  }
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
  for (const Lane& lane : lanes_)
    if (lane.flag != nullptr) device_.free_pinned(lane.flag);
}

Stager::Ticket Stager::enqueue(std::vector<Piece> pieces) {
  const bool is_long = std::any_of(pieces.begin(), pieces.end(),
                                   [](const Piece& one) { return one.copy.bytes > kLong; });
  Ticket ticket;
  {
    const std::lock_guard lock(mutex_);
    const size_t lane = is_long ? 0 : next_lane_;
    next_lane_ = 1 - lane;
    const uint64_t number = ++given_.jobs[lane];
    jobs_.push_back({std::move(pieces), lane, number});
    ticket = given_;
    ++n_given_;
  }
  wanted_.notify_one();
  return ticket;
}

// The stream writes the low 32 bits. This is polled often enough that the word never wraps unseen.
uint64_t Stager::Lane::reached() const {
  uint64_t before = last_reached.load(std::memory_order_acquire);
  const uint32_t word = flag->word.load(std::memory_order_acquire);
  const uint64_t now = before + static_cast<uint32_t>(word - static_cast<uint32_t>(before));
  while (before < now && !last_reached.compare_exchange_weak(before, now)) {
  }
  return std::max(before, now);
}

bool Stager::reached(const Ticket& ticket) const {
  for (size_t i = 0; i < lanes_.size(); ++i)
    if (lanes_[i].reached() < ticket.jobs[i]) return false;
  return true;
}

// Every link asks at every poll, so the common case takes no lock.
Status Stager::status() const {
  if (!failed_.load(std::memory_order_acquire)) return {};
  const std::lock_guard lock(mutex_);
  return status_;
}

void Stager::run() {
  uint64_t n_begun = 0;
  for (;;) {
    const TimePoint sleeps_at = steady_clock().now() + kSpin;
    while (n_given_.load() == n_begun && steady_clock().now() < sleeps_at) cpu_pause();
    Job job;
    {
      std::unique_lock lock(mutex_);
      wanted_.wait(lock, [this] { return stop_ || !jobs_.empty(); });
      if (jobs_.empty()) return;
      job = std::move(jobs_.front());
      jobs_.pop_front();
      ++n_begun;
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
  Lane& lane = lanes_[job.lane];
  const bool on_host = (device_.capabilities() & device::kHostAccessible) != 0;
  std::vector<Copy> together;
  for (const Piece& one : job.pieces) {
    if (one.short_together || on_host) {
      together.push_back(one.copy);
    } else {
      HETCCL_TRY(device_.copy(*lane.stream, one.copy.dst, one.copy.src, one.copy.bytes));
    }
  }
  HETCCL_TRY(device_.copy_all(*lane.stream, together));
  return device_.write_flag(*lane.stream, *lane.flag, static_cast<uint32_t>(job.number));
}

}  // namespace hetccl::onesided
