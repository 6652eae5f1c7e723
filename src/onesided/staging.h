// Pinned memory between a device and the channels that do not reach it, and the thread that has the
// device copy: an engine calls no device.
#pragma once

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

/// Pinned memory in chunks, for one direction of all links. Thread-safe.
class ChunkPool : public std::enable_shared_from_this<ChunkPool> {
 public:
  using Chunk = std::shared_ptr<std::byte>;
  /// The device outlives it, and all chunks.
  ChunkPool(device::Device& device, size_t chunk_bytes, size_t n_chunks)
      : device_(device), chunk_bytes_(chunk_bytes), n_left_(n_chunks) {}
  ~ChunkPool();
  [[nodiscard]] size_t chunk_bytes() const { return chunk_bytes_; }
  /// Pins all of them. SystemError where the host has no such memory.
  Status reserve();
  /// Null where all are in use.
  Chunk take();

 private:
  void give_back(std::byte* memory);

  device::Device& device_;
  const size_t chunk_bytes_;
  std::mutex mutex_;
  size_t n_left_;  // not pinned yet
  std::vector<std::byte*> free_;
};

/// A link's place in a chunk: pieces that follow each other share one.
class Staging {
 public:
  explicit Staging(std::shared_ptr<ChunkPool> pool) : pool_(std::move(pool)) {}
  struct Taken {
    ChunkPool::Chunk chunk;  // keeps it
    std::byte* memory = nullptr;
  };
  /// `bytes` at most of a chunk. Its memory is null where none is free now.
  Taken take(size_t bytes);
  /// Keeps no chunk that nobody uses.
  void rest() { chunk_.reset(); }

 private:
  std::shared_ptr<ChunkPool> pool_;
  ChunkPool::Chunk chunk_;
  size_t used_ = 0;
};

/// Enqueues copies on a stream of its own, in order. Thread-safe, but for destruction.
class Stager {
 public:
  struct Piece {
    Copy copy;
    bool short_together = true;  ///< false: of memory that kernels may not reach
  };
  static Result<std::unique_ptr<Stager>> create(device::Device& device);
  ~Stager();
  Stager(const Stager&) = delete;
  Stager& operator=(const Stager&) = delete;

  /// Copies once `after`, which may be null, has come: they are complete when the ticket it
  /// returns is reached.
  uint32_t enqueue(std::vector<Piece> pieces, std::shared_ptr<device::Event> after);
  /// Whether the copies are complete, or never will be (`status`).
  [[nodiscard]] bool reached(uint32_t ticket) const {
    return flag_->reached(ticket) || failed_.load(std::memory_order_acquire);
  }
  [[nodiscard]] bool idle() const { return reached(given_.load(std::memory_order_acquire)); }
  [[nodiscard]] Status status() const;

 private:
  struct Job {
    std::vector<Piece> pieces;
    std::shared_ptr<device::Event> after;
    uint32_t ticket = 0;
  };
  explicit Stager(device::Device& device) : device_(device) {}
  void run();
  Status copy(const Job& job);

  device::Device& device_;
  std::unique_ptr<device::Stream> stream_;
  device::Flag* flag_ = nullptr;
  std::atomic<uint32_t> given_{0};
  std::atomic<bool> failed_{false};

  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable wanted_;
  std::deque<Job> jobs_;
  Status status_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace hetccl::onesided
