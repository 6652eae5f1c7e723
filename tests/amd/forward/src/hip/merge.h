// The kernel that exchanges changed bytes between the host's and the device's copy of non-coherent
// memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/driver.h"
#include "hip/hip.h"

namespace forward {

/// The copies of one allocation, as the merge kernel reads them. All addresses are the GPU's.
/// `base` is the device's record of the last value that both copies had; it tells which of them
/// changed a byte since. `locks` has one zeroed 32-bit word per kMergeChunkWords.
struct Copies {
  cuda::Address host;
  cuda::Address device;
  cuda::Address base;
  cuda::Address locks;
  std::uint64_t words;  // 32 bits each; 0 marks an unused entry.
};

constexpr std::size_t kMergeChunkWords = 4096;

/// Before a kernel, the device takes what the host changed; after it, the host takes what the
/// kernel changed. The value is the offset in Copies of the copy that is read.
enum class Merge : std::uint32_t {
  kHostToDevice = offsetof(Copies, host),
  kDeviceToHost = offsetof(Copies, device),
};

/// Loads the kernel for this thread's device. hipHostMalloc calls it, because a driver that loads a
/// kernel at its first launch may wait for running kernels.
[[nodiscard]] hipError_t load_merge_kernel(const cuda::Driver& driver);

/// Makes later merges include `copies`. Returns hipErrorOutOfMemory if the table is full.
[[nodiscard]] hipError_t add_copies(const Copies& copies, std::size_t* slot);

/// Makes merges leave the entry `slot` out, those in graphs included, and waits for all devices.
/// Returns an error if it could not wait; then the GPU may still use the copies.
[[nodiscard]] hipError_t remove_copies(const cuda::Driver& driver, std::size_t slot);

/// Enqueues a merge of all entries in `direction`. The entries are those of the time when the
/// kernel runs. Does nothing before the first load_merge_kernel. Thread-safe.
[[nodiscard]] hipError_t enqueue_merge(const cuda::Driver& driver, cuda::Handle queue,
                                       Merge direction);

/// Forgets the table and the loaded kernels, which a device's reset destroyed.
void forget_merges();

}  // namespace forward
