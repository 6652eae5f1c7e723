// One GPU as the interposer uses it: its memory, copies, and a stream whose end the host can see.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

#include "base/status.h"
#include "device/gpu/gpu_device.h"

namespace hetccl::mpi {

/// Whose memory an address is.
struct Owner {
  int gpu = -1;  ///< none's
  bool managed = false;
};
/// Whether the process has loaded a GPU's runtime; where not, all memory is the host's.
/// Thread-safe.
bool has_gpu_runtime();

/// No GPU's runtime is loaded for the question: what the process has not loaded owns nothing. Costs
/// a tenth of a microsecond. Thread-safe.
Owner owner_of(const void* address);

/// A stream of work whose marks the host can see. One thread at a time; marks may be looked at by
/// any.
class GpuQueue {
 public:
  static Result<std::unique_ptr<GpuQueue>> create(device::Device& device);
  ~GpuQueue();
  GpuQueue(const GpuQueue&) = delete;
  GpuQueue& operator=(const GpuQueue&) = delete;

  /// What the vendor's libraries take.
  [[nodiscard]] void* native() const { return stream_->native(); }
  Status copy(void* dst, const void* src, size_t bytes) {
    return device_.copy(*stream_, dst, src, bytes);
  }
  /// What is enqueued from now on comes after what the program has on the default stream. A copy
  /// from pageable memory may be there still when its call has returned.
  Status follow_default_stream();
  /// `is_reached(mark)` once all that is enqueued now is complete.
  Result<uint32_t> mark();
  [[nodiscard]] bool is_reached(uint32_t mark) const { return flag_->reached(mark); }

 private:
  explicit GpuQueue(device::Device& device) : device_(device) {}
  device::Device& device_;
  std::unique_ptr<device::Stream> stream_, default_;
  std::unique_ptr<device::Event> event_;  // of the default stream
  device::Flag* flag_ = nullptr;
  uint32_t marks_ = 0;
};

/// Thread-safe.
class Gpu {
 public:
  /// GPU `index`, as the process counts them. Opened by its first user, for good.
  static Result<Gpu*> open(int index);

  [[nodiscard]] device::Device& device() { return *device_; }
  /// Copies between any two places, and waits.
  Status copy(void* dst, const void* src, size_t bytes);
  /// Waits for what the program has on the default stream.
  Status settle() { return copy(nullptr, nullptr, 0); }

 private:
  explicit Gpu(std::unique_ptr<device::GpuDevice> device) : device_(std::move(device)) {}
  std::unique_ptr<device::GpuDevice> device_;
  std::mutex mutex_;  // guards the queue
  std::unique_ptr<GpuQueue> copies_;
};

}  // namespace hetccl::mpi
