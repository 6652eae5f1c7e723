// Pinned memory between a device and channels that cannot reach its memory, and a thread that makes
// the device copy, because the engine makes no device calls.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/status.h"
#include "device/device.h"

namespace hetccl::onesided {

/// Chunks of pinned memory, for one direction of all links. Thread-safe.
class ChunkPool : public std::enable_shared_from_this<ChunkPool> {
 public:
  using Chunk = std::shared_ptr<std::byte>;
  /// The device must outlive the pool and all chunks.
  ChunkPool(device::Device& device, size_t chunk_bytes, size_t n_chunks)
      : device_(device), chunk_bytes_(chunk_bytes), n_chunks_(n_chunks) {}
  ~ChunkPool();
  [[nodiscard]] size_t chunk_bytes() const { return chunk_bytes_; }
  [[nodiscard]] size_t most_of_link() const { return n_chunks_ / 2; }
  /// Pins all chunks, once. SystemError if the host lacks the memory.
  Status reserve();
  /// Returns null if all are in use.
  Chunk take();
  [[nodiscard]] size_t pinned_bytes() const {
    const std::lock_guard lock(mutex_);
    return n_pinned_ * chunk_bytes_;
  }

 private:
  void give_back(std::byte* memory);

  device::Device& device_;
  const size_t chunk_bytes_, n_chunks_;
  mutable std::mutex mutex_;
  size_t n_pinned_ = 0;
  std::vector<std::byte*> free_;
};

/// A link's current chunk: consecutive pieces share it. A link may hold at most half of the pool's
/// chunks.
class Staging {
 public:
  explicit Staging(std::shared_ptr<ChunkPool> pool) : pool_(std::move(pool)) {}
  struct Taken {
    ChunkPool::Chunk chunk;  // keeps the memory
    std::byte* memory = nullptr;
  };
  /// Takes `bytes`, at most a chunk. The memory is null if none is free now.
  Taken take(size_t bytes);
  /// Releases a partly used chunk.
  void rest() { chunk_.reset(); }

 private:
  std::shared_ptr<ChunkPool> pool_;
  std::shared_ptr<std::atomic<size_t>> live_ = std::make_shared<std::atomic<size_t>>(0);
  ChunkPool::Chunk chunk_;
  size_t used_ = 0;
};

/// Words that users' streams write. Thread-safe.
class Gates {
 public:
  /// Opens when the stream reaches it.
  struct Gate {
    device::Flag* flag = nullptr;  ///< null: always open
    uint32_t value = 0;
    [[nodiscard]] bool is_open() const { return flag == nullptr || flag->reached(value); }
  };
  /// The device must outlive it. Memory that a stream has yet to write is never freed.
  explicit Gates(device::Device& device) : device_(device) {}
  ~Gates();
  Gates(const Gates&) = delete;
  Gates& operator=(const Gates&) = delete;
  /// Makes a gate that opens once `stream` has reached this point.
  Result<Gate> add(device::Stream& stream);

 private:
  device::Device& device_;
  std::mutex mutex_;
  std::vector<Gate> gates_;  // the last gate of each word
  std::vector<void*> pinned_memory_;
};

/// Enqueues jobs of copies on two streams of its own, in turns: one copies while the other writes
/// the flag of its last job. Jobs may run side by side. Thread-safe, except for destruction.
class Stager {
 public:
  /// How many jobs each stream had been given when a job was enqueued, that job included. As made,
  /// it is reached.
  struct Ticket {
    std::array<uint64_t, 2> jobs{};
    bool operator==(const Ticket&) const = default;
  };
  struct Piece {
    Copy copy;
    bool short_together = true;  ///< copies short pieces in one kernel; false for memory that
                                 ///< kernels may not reach
  };
  static Result<std::unique_ptr<Stager>> create(device::Device& device);
  ~Stager();
  Stager(const Stager&) = delete;
  Stager& operator=(const Stager&) = delete;

  /// Returns a ticket that is reached once these copies and all before are complete.
  Ticket enqueue(std::vector<Piece> pieces);
  [[nodiscard]] bool reached(const Ticket& ticket) const;
  /// Why some enqueued copies will never be reached; ok while nothing has failed.
  [[nodiscard]] Status status() const;

 private:
  struct Job {
    std::vector<Piece> pieces;
    size_t lane = 0;
    uint64_t number = 0;  // of its lane
  };
  struct Lane {
    [[nodiscard]] uint64_t reached() const;

    std::unique_ptr<device::Stream> stream;
    device::Flag* flag = nullptr;
    mutable std::atomic<uint64_t> last_reached{0};  // as of the last call of `reached`
  };
  explicit Stager(device::Device& device) : device_(device) {}
  void run();
  Status copy(const Job& job);

  device::Device& device_;
  std::array<Lane, 2> lanes_;
  std::atomic<bool> failed_{false};

  mutable std::mutex mutex_;  // guards the members below
  std::condition_variable wanted_;
  Ticket given_;
  size_t next_lane_ = 0;
  std::atomic<uint64_t> n_given_{0};  // jobs of both lanes; read without the lock
  std::deque<Job> jobs_;
  Status status_;
  bool stop_ = false;
  std::thread thread_;
};

/// `stager` may be null where no ticket is its own.
inline bool reached(const Stager* stager, const Stager::Ticket& ticket) {
  return ticket == Stager::Ticket{} || stager->reached(ticket);
}

}  // namespace hetccl::onesided
