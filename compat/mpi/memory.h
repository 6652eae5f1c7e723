// Where a program's buffers lie, and scratch memory beside them. A GPU's runtime is asked only
// where the process has loaded it.
#pragma once

#include <cstddef>
#include <utility>

#include "base/status.h"
#include "mpi/gpu.h"

namespace hetccl::mpi {

/// A place for data. The host reaches managed memory, and so do GPUs of its vendor.
struct MemorySpace {
  enum class Kind { Host, Device, Managed };
  Kind kind = Kind::Host;
  GpuName gpu;  ///< of device and managed memory

  [[nodiscard]] bool on_host() const { return kind == Kind::Host; }
  /// Whether what works on `place` (the host or a GPU) can use it as it is.
  [[nodiscard]] bool is_usable_on(const MemorySpace& place) const {
    if (kind == Kind::Managed) return place.on_host() || place.gpu.vendor == gpu.vendor;
    return kind == place.kind && gpu == place.gpu;
  }
  bool operator==(const MemorySpace&) const = default;
};

/// Thread-safe, and cheap: a fraction of a microsecond.
MemorySpace memory_of(const void* address);

/// Waits for what the program's GPU may be doing with managed memory, before the host uses it.
Status settle(MemorySpace memory);

/// Copies between any two places, and waits until it is done.
Status copy_memory(void* dst, MemorySpace dst_place, const void* src, MemorySpace src_place,
                   size_t bytes);

/// Memory for one call. What is given back is kept, and taken by later calls. Thread-safe.
class Scratch {
 public:
  static Result<Scratch> take(MemorySpace place, size_t bytes);
  Scratch(Scratch&& other) noexcept
      : place_(other.place_), data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_) {}
  Scratch& operator=(Scratch&& other) noexcept {
    std::swap(place_, other.place_), std::swap(data_, other.data_), std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Scratch();

  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] MemorySpace place() const { return place_; }

 private:
  Scratch(MemorySpace place, std::byte* data, size_t bytes)
      : place_(place), data_(data), bytes_(bytes) {}
  MemorySpace place_;
  std::byte* data_;
  size_t bytes_;
};

}  // namespace hetccl::mpi
