// An asynchronous device without hardware. Each stream is a thread with seeded random delays
// between tasks. Device memory lies at addresses that nobody may touch (PROT_NONE): host code that
// reads or writes it crashes, while stream threads use a second mapping of the same pages. So what
// works on it does not rely on host-accessible memory, nor on work being done when enqueued.
//
// It has a driver's lock, as CUDA has one for each context. A free of the user's (`drain_and_free`)
// holds it until all streams are empty. Meanwhile calls that make or end streams, events and memory
// wait for it. Whoever drives an engine may not wait there, since the streams may wait for that
// engine: any call of the device by such a thread ends the process.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "device/device.h"

namespace hetccl::fake {

struct FakeOptions {
  uint64_t seed = 1;
  int max_delay_us = 100;           ///< before each task; 0: none
  bool kernels = true;              ///< false: no kKernels, `reduce` is Unsupported
  bool encodes = true;              ///< false: none of its kernels encode
  std::optional<DataType> lacks{};  ///< a type that `reduce` has not
  bool one_queue = false;  ///< all streams share one, as with CUDA_DEVICE_MAX_CONNECTIONS=1
  size_t memory_bytes = size_t{256} << 20;
  int multiprocessors = 0;
  bool exports = true;       ///< its memory, as dma-bufs
  bool needs_flush = false;  ///< as Device::needs_flush
  std::string bus{};         ///< as Device::bus_id
};

/// Calls of a device so far that steady state has none of.
struct FakeCalls {
  uint64_t makes = 0;      ///< of memory, streams and events: those that make, free, pin or unpin
  uint64_t by_hetccl = 0;  ///< any, from hetccl's own threads, but the one that may wait in drivers
  int waiting = 0;         ///< that wait for the driver's lock at this moment
  bool drains = false;     ///< a free holds the driver's lock
};

/// Vendor "fake". Native streams are `TaskQueue*` polled by the stream's own thread; ccl/host runs
/// on them. Allocations are filled with 0xA5. A stream that is destroyed finishes its work first,
/// and ends the process when that takes longer than ten seconds.
class FakeDevice : public device::Device {
 public:
  static Result<std::unique_ptr<FakeDevice>> create(const FakeOptions& options = {});

  /// Copies between host and device memory at once; the caller knows that no stream uses it.
  virtual void upload(void* device_memory, const void* host, size_t bytes) = 0;
  virtual void download(void* host, const void* device_memory, size_t bytes) = 0;
  /// An address through which a transport can reach the device's memory; other memory is returned
  /// unchanged.
  [[nodiscard]] virtual void* reach(void* memory) const = 0;
  /// Sets whether all streams report that they record a graph. Enqueued work runs all the same.
  virtual void set_capturing(bool capturing) = 0;
  [[nodiscard]] virtual FakeCalls calls() const = 0;
  /// Frees as cudaFree does: holds the driver's lock until all streams are empty. (`free` itself
  /// gives memory back to a pool, as hetccl's GPU devices do.) Ends the process after kHang.
  virtual void drain_and_free(void* memory) = 0;
  /// Waits until all streams are empty; false at the deadline.
  [[nodiscard]] virtual bool synchronize(Duration deadline) = 0;
};

}  // namespace hetccl::fake
