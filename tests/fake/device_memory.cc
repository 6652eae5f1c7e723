#include "fake/device_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace hetccl::fake {

namespace {

constexpr size_t kAlignment = 256;

std::byte* map(int fd, size_t bytes, int protection) {
  void* memory = mmap(nullptr, bytes, protection, MAP_SHARED | MAP_NORESERVE, fd, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<std::byte*>(memory);
}

}  // namespace

Status DeviceMemory::open(size_t bytes) {
  fd_ = Fd(memfd_create("hetccl-fake-device", MFD_CLOEXEC));
  const int fd = fd_.get();
  if (fd < 0) return system_error("memfd_create for the fake device", errno);
  if (ftruncate(fd, static_cast<off_t>(bytes)) == 0) {
    device_ = map(fd, bytes, PROT_NONE);
    alias_ = map(fd, bytes, PROT_READ | PROT_WRITE);
  }
  const int failure = errno;
  bytes_ = bytes;
  if (!device_ || !alias_) return system_error("mapping the fake device's memory", failure);
  return {};
}

DeviceMemory::~DeviceMemory() {
  if (device_) munmap(device_, bytes_);
  if (alias_) munmap(alias_, bytes_);
}

Result<void*> DeviceMemory::allocate(size_t bytes) {
  if (bytes > bytes_) return error(ErrorCode::SystemError, "fake device: out of memory");
  // One unit more than needed: neighbours do not touch.
  const size_t size = (bytes + kAlignment) / kAlignment * kAlignment;
  std::lock_guard lock(mutex_);
  size_t offset = 0;
  for (const auto& [start, length] : used_) {
    if (start - offset >= size) break;
    offset = start + length;
  }
  if (bytes_ - offset < size) return error(ErrorCode::SystemError, "fake device: out of memory");
  used_.emplace(offset, size);
  std::memset(alias_ + offset, 0xA5, size);
  return device_ + offset;
}

void DeviceMemory::free(void* memory) {
  if (!memory) return;
  std::lock_guard lock(mutex_);
  if (used_.erase(static_cast<size_t>(static_cast<std::byte*>(memory) - device_)) == 1) return;
  std::fprintf(stderr, "fake device: free of %p, which was not allocated\n", memory);
  std::abort();
}

Result<device::DmaBuf> DeviceMemory::export_memory(const device::Allocation& allocation) const {
  Fd copy(::dup(fd_.get()));
  if (!copy.valid()) return system_error("dup of the fake device's memory", errno);
  return device::DmaBuf{std::move(copy), static_cast<size_t>(allocation.base - device_)};
}

std::byte* DeviceMemory::alias(const void* address) const {
  auto* bytes = const_cast<std::byte*>(static_cast<const std::byte*>(address));
  return bytes >= device_ && bytes < device_ + bytes_ ? alias_ + (bytes - device_) : bytes;
}

}  // namespace hetccl::fake
