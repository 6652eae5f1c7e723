#include "mpi/memory.h"

#include <array>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

namespace hetccl::mpi {
namespace {

// Free host memory by size class: the largest power of two that fits in it. Memory above the
// largest class is not kept.
class HostPool {
 public:
  void* take(size_t bytes) {
    const size_t index = class_of(bytes);
    {
      const std::lock_guard lock(mutex_);
      if (index < kClasses && !free_[index].empty()) {
        void* memory = free_[index].back();
        free_[index].pop_back();
        return memory;
      }
    }
    const size_t size = index < kClasses ? size_t{1} << index : (bytes + kPage - 1) & ~(kPage - 1);
    return std::aligned_alloc(kPage, std::max(size, kPage));
  }
  void give(void* memory, size_t bytes) {
    const size_t index = class_of(bytes);
    {
      const std::lock_guard lock(mutex_);
      if (index < kClasses && free_[index].size() < kKept) {
        free_[index].push_back(memory);
        return;
      }
    }
    std::free(memory);
  }

 private:
  static constexpr size_t kPage = 4096, kClasses = 28, kKept = 2;
  static size_t class_of(size_t bytes) { return std::bit_width(std::max<size_t>(bytes, 1) - 1); }
  std::mutex mutex_;
  std::array<std::vector<void*>, kClasses> free_;
};

HostPool& host_pool() {
  static auto* pool = new HostPool;  // leaked: outlives every communicator
  return *pool;
}

}  // namespace

MemorySpace memory_of(const void* address) {
  const Owner owner = owner_of(address);
  if (owner.gpu.vendor == nullptr) return {};
  return {owner.managed ? MemorySpace::Kind::Managed : MemorySpace::Kind::Device, owner.gpu};
}

Status settle(MemorySpace memory) {
  if (memory.kind != MemorySpace::Kind::Managed) return {};
  HETCCL_ASSIGN(Gpu * gpu, Gpu::open(memory.gpu));
  return gpu->settle();
}

Status copy_memory(void* dst, MemorySpace dst_place, const void* src, MemorySpace src_place,
                   size_t bytes) {
  if (bytes == 0) return {};
  const bool device = dst_place.kind == MemorySpace::Kind::Device;
  if (!device && src_place.kind != MemorySpace::Kind::Device) {
    std::memcpy(dst, src, bytes);
    return {};
  }
  if (!dst_place.on_host() && !src_place.on_host() &&
      dst_place.gpu.vendor != src_place.gpu.vendor) {
    HETCCL_TRY(settle(src_place));
    HETCCL_TRY(settle(dst_place));
    HETCCL_ASSIGN(const Scratch between, Scratch::take({}, bytes));
    HETCCL_TRY(copy_memory(between.data(), {}, src, src_place, bytes));
    return copy_memory(dst, dst_place, between.data(), {}, bytes);
  }
  HETCCL_ASSIGN(Gpu * gpu, Gpu::open(device ? dst_place.gpu : src_place.gpu));
  return gpu->copy(dst, src, bytes);
}

Result<Scratch> Scratch::take(MemorySpace place, size_t bytes) {
  if (place.on_host()) {
    void* memory = host_pool().take(bytes);
    if (memory == nullptr) {
      return error(ErrorCode::SystemError, "no memory for %zu bytes of scratch", bytes);
    }
    return Scratch(place, static_cast<std::byte*>(memory), bytes);
  }
  HETCCL_ASSIGN(Gpu * gpu, Gpu::open(place.gpu));
  HETCCL_ASSIGN(void* memory, gpu->device().allocate(bytes));
  return Scratch({MemorySpace::Kind::Device, place.gpu}, static_cast<std::byte*>(memory), bytes);
}

Scratch::~Scratch() {
  if (data_ == nullptr) return;
  if (place_.on_host()) {
    host_pool().give(data_, bytes_);
    return;
  }
  const auto gpu = Gpu::open(place_.gpu);
  if (gpu.ok()) gpu.value()->device().free(data_);
}

}  // namespace hetccl::mpi
