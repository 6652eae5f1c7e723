// Finds the memory space of a program's buffers, and keeps scratch memory. Asks a GPU's runtime
// only if the process has loaded it.
#pragma once

#include <cstddef>
#include <utility>

#include "base/status.h"
#include "mpi/gpu.h"

namespace hetccl::mpi {

/// A memory space. The host and all GPUs of its vendor reach managed memory.
struct MemorySpace {
  enum class Kind { Host, Device, Managed };
  Kind kind = Kind::Host;
  GpuName gpu;  ///< of device and managed memory

  [[nodiscard]] bool on_host() const { return kind == Kind::Host; }
  /// Whether work on `place` (the host or a GPU) can use this memory directly.
  [[nodiscard]] bool is_usable_on(const MemorySpace& place) const {
    if (kind == Kind::Managed) return place.on_host() || place.gpu.vendor == gpu.vendor;
    return kind == place.kind && gpu == place.gpu;
  }
  bool operator==(const MemorySpace&) const = default;
};

/// Thread-safe, and cheap: a fraction of a microsecond.
MemorySpace memory_of(const void* address);

/// Waits for the GPU's work on managed memory, so that the host may use it.
Status settle(MemorySpace memory);

/// Copies between any two places and waits.
Status copy_memory(void* dst, MemorySpace dst_place, const void* src, MemorySpace src_place,
                   size_t bytes);

/// Memory for one call. Freed memory is kept for later calls. Thread-safe.
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
