#include "hip/shadow.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <vector>

#include "core/reject.h"
#include "cuda/numbers.h"
#include "hip/context.h"
#include "hip/errors.h"

namespace forward {
namespace {

std::size_t round_up(std::size_t bytes, std::size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

std::size_t words_of(std::size_t bytes) {
  return (bytes + 3) / 4;
}

std::size_t chunks_of(std::size_t bytes) {
  return round_up(words_of(bytes), kMergeChunkWords) / kMergeChunkWords;
}

cuda::AllocationProperties device_memory(int device) {
  cuda::AllocationProperties properties{};
  properties.type = cuda::kAllocationPinned;
  properties.location = {cuda::kLocationDevice, device};
  return properties;
}

}  // namespace

Shadow::~Shadow() {
  // The driver must find its own reservation at the address when it frees it.
  if (replaced_ && before_ == HostRange::kReserved) {
    (void)mmap(address(), host_bytes_, PROT_NONE,
               MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  } else if (replaced_) {
    (void)munmap(address(), host_bytes_);
  }
  if (mapped_) (void)driver_.mem_unmap(reserved_, device_bytes_);
  if (reserved_ != 0) (void)driver_.mem_address_free(reserved_, device_bytes_);
  if (has_memory_) (void)driver_.mem_release(memory_);
  if (registered_) (void)driver_.mem_host_unregister(alias_);
  if (alias_ != nullptr) (void)munmap(alias_, host_bytes_);
}

hipError_t Shadow::create(std::size_t bytes) {
  bytes_ = bytes;
  host_bytes_ = round_up(bytes, static_cast<std::size_t>(getpagesize()));
  const int file = memfd_create("forward-noncoherent", MFD_CLOEXEC);
  if (file < 0) return hipErrorOutOfMemory;
  hipError_t error = map_alias(file);
  if (error == hipSuccess) error = back_with_device_memory();
  if (error == hipSuccess) error = replace_reservation(file);
  (void)close(file);
  return error == hipSuccess ? zero() : error;
}

Copies Shadow::copies() const {
  return {alias(), reserved_, reserved_ + host_bytes_, reserved_ + locks_offset(),
          words_of(bytes_)};
}

hipError_t Shadow::map_alias(int file) {
  if (ftruncate(file, static_cast<off_t>(host_bytes_)) != 0) return hipErrorOutOfMemory;
  void* mapping = mmap(nullptr, host_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (mapping == MAP_FAILED) return hipErrorOutOfMemory;
  alias_ = mapping;
  const int code =
      driver_.mem_host_register(alias_, bytes_, cuda::kRegisterPortable | cuda::kRegisterDeviceMap);
  registered_ = code == 0;
  if (code != 0) return from_cuda(code);
  cuda::Address device = 0;
  const int asked = driver_.mem_host_get_device_pointer(&device, alias_, 0);
  if (asked != 0) return from_cuda(asked);
  if (device == alias()) return hipSuccess;
  explain_once("hipHostMalloc",
               "mode non-coherent needs a GPU that accesses registered memory by the host's "
               "address");
  return hipErrorNotSupported;
}

hipError_t Shadow::back_with_device_memory() {
  const int device = current_device();
  const cuda::AllocationProperties properties = device_memory(device);
  std::size_t granule = 0;
  int code = driver_.mem_get_granularity(&granule, &properties, cuda::kGranularityMinimum);
  if (code != 0) return from_cuda(code);
  device_bytes_ = round_up(locks_offset() + 4 * chunks_of(bytes_), granule);
  code = driver_.mem_address_reserve(&reserved_, device_bytes_, 0, 0, 0);
  if (code != 0) return from_cuda(code);
  code = driver_.mem_create(&memory_, device_bytes_, &properties, 0);
  has_memory_ = code == 0;
  if (code == 0) code = driver_.mem_map(reserved_, device_bytes_, 0, memory_, 0);
  mapped_ = has_memory_ && code == 0;
  return code == 0 ? grant_access(device) : from_cuda(code);
}

// HIP's pinned memory is mapped into every GPU, so each GPU that reaches this one has access.
hipError_t Shadow::grant_access(int device) const {
  std::vector<cuda::AccessDescriptor> access;
  const int devices = device_count(driver_);
  for (int peer = 0; peer < devices; ++peer) {
    int yes = peer == device ? 1 : 0;
    if (yes == 0) (void)driver_.device_can_access_peer(&yes, peer, device);
    if (yes != 0) access.push_back({{cuda::kLocationDevice, peer}, cuda::kAccessReadWrite});
  }
  return from_cuda(driver_.mem_set_access(reserved_, device_bytes_, access.data(), access.size()));
}

hipError_t Shadow::replace_reservation(int file) {
  before_ = inspect_host_range();
  if (before_ == HostRange::kInUse) {
    explain_once("hipHostMalloc",
                 "mode non-coherent cannot replace the driver's mapping of a reserved address");
    return hipErrorNotSupported;
  }
  void* at = mmap(address(), host_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0);
  replaced_ = at != MAP_FAILED;
  return replaced_ ? hipSuccess : hipErrorOutOfMemory;
}

// A stream of its own, because the null stream may be waiting, or be part of a capture.
hipError_t Shadow::zero() const {
  cuda::Handle stream = nullptr;
  int code = driver_.stream_create(&stream, cuda::kStreamNonBlocking, 0);
  if (code != 0) return from_cuda(code);
  code = driver_.memset_d8_async(reserved_, 0, device_bytes_, stream);
  if (code == 0) code = driver_.stream_synchronize(stream);
  const int destroyed = driver_.stream_destroy(stream);
  return from_cuda(code != 0 ? code : destroyed);
}

// The host's mapping at the address: none, or an anonymous reservation of the whole range. A
// mapping of a driver's file counts as in use, because unmapping it may unmap the GPU's memory.
Shadow::HostRange Shadow::inspect_host_range() const {
  std::FILE* maps = std::fopen("/proc/self/maps", "r");
  if (maps == nullptr) return HostRange::kInUse;
  const unsigned long long end = reserved_ + host_bytes_;
  unsigned long long covered = 0;
  bool in_use = false;
  char line[512];
  while (std::fgets(line, sizeof line, maps) != nullptr) {
    unsigned long long first = 0;
    unsigned long long last = 0;
    char access[8] = "";
    unsigned long long file = 0;
    const int fields =
        std::sscanf(line, "%llx-%llx %7s %*s %*s %llu", &first, &last, access, &file);
    if (fields != 4) continue;
    first = std::max(first, reserved_);
    last = std::min(last, end);
    if (first >= last) continue;
    covered += last - first;
    if (std::strncmp(access, "---", 3) == 0 && file == 0) continue;
    in_use = true;
    std::fprintf(stderr, "forward: the driver's reservation: %s", line);
  }
  (void)std::fclose(maps);
  if (in_use || (covered != 0 && covered != host_bytes_)) return HostRange::kInUse;
  return covered == 0 ? HostRange::kUnmapped : HostRange::kReserved;
}

}  // namespace forward
