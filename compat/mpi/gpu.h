// One GPU as the interposer uses it: its memory, copies, and a stream whose end the host can see.
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

/// A GPU of the process.
struct GpuName {
  const device::gpu::Vendor* vendor = nullptr;  ///< null: no GPU
  int index = -1;                               ///< as the vendor's runtime counts them

  [[nodiscard]] std::string text() const { return format("%s:%d", vendor->name, index); }
  auto operator<=>(const GpuName&) const = default;
};

/// The owner of the memory at an address.
struct Owner {
  GpuName gpu;
  bool managed = false;
};

/// Vendors, as bits in the order of the table.
using VendorSet = uint32_t;
VendorSet set_of(const device::gpu::Vendor& vendor);

/// The vendors whose runtimes the process has loaded; where there is none, all memory is the
/// host's. An atomic load where these are all vendors that the machine can have, else 20 ns more.
/// Thread-safe.
VendorSet loaded_runtimes();

/// Loads no runtime: what the process has not loaded owns nothing. Thread-safe.
Owner owner_of(const void* address);

/// GPU `index` of the first vendor whose runtime loads here and has one.
Result<GpuName> find_gpu(int index);

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
  /// Opened by its first user, for good.
  static Result<Gpu*> open(GpuName name);

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
