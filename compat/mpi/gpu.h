// One GPU as the interposer uses it: its memory, copies, and a stream with marks that the host can
// see.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "base/status.h"
#include "device/gpu/gpu_device.h"
#include "device/gpu/vendors.h"

namespace hetccl::mpi {

/// Identifies a GPU of this process.
struct GpuName {
  const device::gpu::Vendor* vendor = nullptr;  ///< null: no GPU
  int index = -1;                               ///< in the vendor runtime's numbering

  [[nodiscard]] std::string text() const { return format("%s:%d", vendor->name, index); }
  auto operator<=>(const GpuName&) const = default;
};

/// The owner of the memory at an address.
struct Owner {
  GpuName gpu;
  bool managed = false;
};

/// Set of vendors: one bit each, in the order of the table.
using VendorSet = uint32_t;
VendorSet set_of(const device::gpu::Vendor& vendor);

/// The vendors whose runtimes the process has loaded; if none, all memory is the host's. Costs an
/// atomic load if every vendor that this machine may have is loaded, else 20 ns more. Thread-safe.
VendorSet loaded_runtimes();

/// Finds the owner of `address`. Loads no runtime: a runtime that the process has not loaded owns
/// nothing. Thread-safe.
Owner owner_of(const void* address);

/// Finds GPU `index` of the first vendor whose runtime loads here and has that many.
Result<GpuName> find_gpu(int index);

/// A stream with marks that the host can see. One thread at a time enqueues; any thread may look at
/// marks.
class GpuQueue {
 public:
  static Result<std::unique_ptr<GpuQueue>> create(device::Device& device);
  ~GpuQueue();
  GpuQueue(const GpuQueue&) = delete;
  GpuQueue& operator=(const GpuQueue&) = delete;

  /// The stream, as the vendor's libraries take it.
  [[nodiscard]] void* native() const { return stream_->native(); }
  Status copy(void* dst, const void* src, size_t bytes) {
    return device_.copy(*stream_, dst, src, bytes);
  }
  /// Orders later work after the program's work on the default stream. Needed because a copy from
  /// pageable memory may still be running when its call returns.
  Status follow_default_stream();
  /// Returns a mark; `is_reached(mark)` is true once all work enqueued so far is complete.
  Result<uint32_t> mark();
  [[nodiscard]] bool is_reached(uint32_t mark) const { return flag_->reached(mark); }

 private:
  explicit GpuQueue(device::Device& device) : device_(device) {}
  device::Device& device_;
  std::unique_ptr<device::Stream> stream_, default_;
  std::unique_ptr<device::Event> event_;  // recorded on the default stream
  device::Flag* flag_ = nullptr;
  uint32_t marks_ = 0;
};

/// Thread-safe.
class Gpu {
 public:
  /// Opens the GPU at its first use; it stays open until the process ends.
  static Result<Gpu*> open(GpuName name);

  [[nodiscard]] device::Device& device() { return *device_; }
  /// Copies between any two places and waits.
  Status copy(void* dst, const void* src, size_t bytes);
  /// Waits for the program's work on the default stream.
  Status settle() { return copy(nullptr, nullptr, 0); }

 private:
  explicit Gpu(std::unique_ptr<device::GpuDevice> device) : device_(std::move(device)) {}
  std::unique_ptr<device::GpuDevice> device_;
  std::mutex mutex_;  // guards the queue
  std::unique_ptr<GpuQueue> copies_;
};

}  // namespace hetccl::mpi
