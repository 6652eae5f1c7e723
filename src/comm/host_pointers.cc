#include "comm/host_pointers.h"

#include <cstdint>

namespace hetccl::comm {

Status HostPointers::check(const void* address, const char* argument) {
  if (address == nullptr) return {};
  constexpr uint64_t kSpread = 0x9e3779b97f4a7c15U;  // 2^64 over the golden ratio
  const uint64_t place = reinterpret_cast<uintptr_t>(address) * kSpread >> 58U;
  std::atomic<const void*>& known = known_[place];
  if (known.load(std::memory_order_relaxed) == address) [[likely]]
    return {};
  if (const std::string gpu = gpu_of(address); !gpu.empty()) {
    return error(ErrorCode::InvalidArgument,
                 "%s is memory of the GPU %s, and this rank is on the host: make its communicator "
                 "with the device \"%s\" in hetcclConfig_t, or with that GPU as the thread's "
                 "current one, or copy the data to the host first",
                 argument, gpu.c_str(), gpu.c_str());
  }
  known.store(address, std::memory_order_relaxed);
  return {};
}

std::string HostPointers::gpu_of(const void* address) const {
  for (const Gpus& gpus : gpus_) {
    const int owner = gpus.owner_of(address);
    if (owner >= 0) return gpus.vendor() + ":" + std::to_string(owner);
  }
  return "";
}

}  // namespace hetccl::comm
