// The device seam: memory, pinned host memory, streams, events, host flags, copies and reductions.
//
// exec drives every device through this interface in the same way. It enqueues all work of a
// collective on streams at once, and orders it against the wire by *flags*: words in mapped memory
// that a stream waits for or writes, and that the progress engine polls or writes. No call here
// waits for device work, and the progress engine calls none of them except `progress`.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/copy.h"
#include "base/fd.h"
#include "base/reduce.h"
#include "base/status.h"

namespace hetccl::device {

/// Declared abilities. exec and comm test for these, never for a vendor.
enum Capability : uint32_t {
  kHostAccessible = 1U << 0,  ///< host threads and transports can access device memory directly
  kKernels = 1U << 1,         ///< `reduce` works; otherwise the vendor library or the host reduces
  kCooperative = 1U << 2,     ///< streams advance only inside `progress`
  kDefaultStream = 1U << 3,   ///< a null native stream is the vendor's default stream
  /// `reduce` takes encoded operands (base/encoding.h), and averages of scaled floats whose divisor
  /// is no whole number (Divisor::scaled).
  kEncodes = 1U << 4,
  kBatches = 1U << 5,  ///< `run` launches short work together
};

/// A word in mapped host memory that orders a stream against the host. Compared cyclically, as by
/// cuStreamWaitValue32(GEQ): a wait for `value` ends when int32_t(word - value) >= 0.
struct alignas(64) Flag {
  std::atomic<uint32_t> word{0};
  [[nodiscard]] bool reached(uint32_t value) const {
    return static_cast<int32_t>(word.load(std::memory_order_acquire) - value) >= 0;
  }
};
/// The value that an abort writes into a flag. It ends every wait, because no counter of an
/// operation gets near it.
inline constexpr uint32_t kFlagAborted = 1U << 30;

/// An in-order queue of device work. Opaque to all but its Device.
class Stream {
 public:
  virtual ~Stream() = default;
  /// Returns the handle that the vendor's own library takes (cudaStream_t, hipStream_t; TaskQueue*
  /// for host).
  [[nodiscard]] virtual void* native() const = 0;
};

/// A point in a stream. Opaque to all but its Device.
class Event {
 public:
  virtual ~Event() = default;
};

/// The reduction that `Device::reduce` computes, bit for bit; see base/reduce.h.
using Reduction = hetccl::Reduction;

/// A piece of a stream's work, for `Device::run`.
struct StreamWork {
  enum class Kind : uint8_t { Wait, Write, Copy, Reduce } kind{};
  Flag* flag = nullptr;  ///< for Wait and Write
  uint32_t value = 0;
  Reduction reduction{};  ///< Copy: `count` bytes from its one source
};

/// Memory that was allocated, or mapped, as one piece.
struct Allocation {
  std::byte* base = nullptr;
  size_t bytes = 0;
  uint64_t id = 0;         ///< unique among the process's allocations, past and present
  bool on_device = false;  ///< false: host memory, which other devices reach at its address
};

/// A dma-buf: a descriptor by which other devices reach memory.
struct DmaBuf {
  Fd fd;
  size_t offset = 0;  ///< the memory's offset in the dma-buf
};

/// One accelerator, or the host. Thread-safe unless noted. Errors are SystemError with the vendor's
/// text.
class Device {
 public:
  virtual ~Device() = default;
  [[nodiscard]] virtual uint32_t capabilities() const = 0;
  /// Returns "host", "cuda" or "hip", for RankInfo, as are model and architecture.
  [[nodiscard]] virtual std::string vendor() const = 0;
  [[nodiscard]] virtual std::string model() const = 0;
  [[nodiscard]] virtual std::string architecture() const = 0;
  /// Returns its PCI address, such as "0000:3b:00.0"; empty: none.
  [[nodiscard]] virtual std::string bus_id() const { return {}; }
  /// Returns the number of thread blocks that are sure to run at once, one on each; 0: unknown.
  [[nodiscard]] virtual int multiprocessors() const { return 0; }
  /// Returns whether `reduce`, on a device with kernels, combines elements of `type` by `op`.
  [[nodiscard]] virtual bool supports(DataType type, RedOp op) const {
    return is_valid(type) && is_valid(op) && applies(op, type);
  }

  virtual Result<void*> allocate(size_t bytes) = 0;
  /// Requires that no device work uses the memory any more; the same holds for pinned memory.
  virtual void free(void* memory) = 0;
  /// Allocates zeroed, page-locked host memory that the device can read and write. Flags live here.
  virtual Result<void*> allocate_pinned(size_t bytes) = 0;
  virtual void free_pinned(void* memory) = 0;

  /// Prepares that much pinned and device memory, so that later allocations take from it without
  /// waiting. This call itself may wait for the device.
  virtual Status reserve(size_t pinned_bytes, size_t device_bytes) {
    static_cast<void>(pinned_bytes), static_cast<void>(device_bytes);
    return {};
  }
  /// Pins memory that the process has mapped, until `unpin`, so that it is like allocate_pinned's.
  /// Both may wait for the device. `bytes` must be whole pages.
  virtual Status pin(void* memory, size_t bytes) = 0;
  virtual void unpin(void* memory) = 0;

  /// Returns the allocation that contains `address` if other devices, such as NICs, may reach it;
  /// else nothing. Fast.
  [[nodiscard]] virtual std::optional<Allocation> find_allocation(const void* address) {
    static_cast<void>(address);
    return {};
  }
  /// Exports an allocation on the device. It lives while the dma-buf is in use, even after it is
  /// freed. Returns Unsupported if the device has no dma-bufs.
  virtual Result<DmaBuf> export_memory(const Allocation& allocation) {
    static_cast<void>(allocation);
    return error(ErrorCode::Unsupported, "%s exports no memory", vendor().c_str());
  }
  /// Returns whether streams may miss another device's writes to its memory until that device has
  /// also read from there.
  [[nodiscard]] virtual bool needs_flush() const { return false; }

  virtual Result<std::unique_ptr<Stream>> create_stream() = 0;
  /// Wraps the user's own native stream (not owned). Null returns InvalidArgument without
  /// kDefaultStream.
  virtual Result<std::unique_ptr<Stream>> wrap_stream(void* native) = 0;
  /// Returns whether work enqueued on a native stream is captured into a graph, to run later or
  /// repeatedly.
  virtual bool is_capturing(void* native) {
    static_cast<void>(native);
    return false;
  }
  virtual Result<std::unique_ptr<Event>> create_event() = 0;

  // Enqueue calls return at once; work of one stream runs in order. The caller must serialise calls
  // on one stream.
  virtual Status record(Event& event, Stream& stream) = 0;
  virtual Status wait(Stream& stream, Event& event) = 0;
  virtual Status wait_flag(Stream& stream, Flag& flag, uint32_t value) = 0;
  virtual Status write_flag(Stream& stream, Flag& flag, uint32_t value) = 0;
  /// Copies between device or pinned memory on either side.
  virtual Status copy(Stream& stream, void* dst, const void* src, size_t bytes) = 0;
  /// Like `copy`, but a short copy starts sooner if it would be a kernel, whose launch may wait for
  /// earlier work of the stream (CUDA_LAUNCH_BLOCKING=1).
  virtual Status copy_soon(Stream& stream, void* dst, const void* src, size_t bytes) {
    return copy(stream, dst, src, bytes);
  }
  /// Makes many copies among device and pinned memory that do not overlap. Starts short ones
  /// together.
  virtual Status copy_all(Stream& stream, std::span<const Copy> copies) {
    for (const Copy& one : copies) HETCCL_TRY(copy(stream, one.dst, one.src, one.bytes));
    return {};
  }
  virtual Status reduce(Stream& stream, const Reduction& reduction) = 0;
  /// Enqueues `work` in order, with as few launches as possible. With `spins`, a kernel may wait
  /// for flags; only allowed if no other process shares the device. Returns SystemError without
  /// kBatches.
  virtual Status run(Stream& stream, std::span<const StreamWork> work, bool spins) {
    static_cast<void>(stream), static_cast<void>(work), static_cast<void>(spins);
    return error(ErrorCode::SystemError, "%s launches nothing together", vendor().c_str());
  }
  /// Enqueues one piece by itself.
  Status enqueue(Stream& stream, const StreamWork& work) {
    const Reduction& reduction = work.reduction;
    switch (work.kind) {
      case StreamWork::Kind::Wait:
        return wait_flag(stream, *work.flag, work.value);
      case StreamWork::Kind::Write:
        return write_flag(stream, *work.flag, work.value);
      case StreamWork::Kind::Copy:
        return copy_soon(stream, reduction.dst, reduction.srcs[0], reduction.count);
      case StreamWork::Kind::Reduce:
        return reduce(stream, reduction);
    }
    return {};
  }
  /// Runs `function(argument)` on a host thread when the stream gets there; the stream continues
  /// when it returns. The function must neither wait nor call a device.
  virtual Status call_host(Stream& stream, void (*function)(void*), void* argument) = 0;

  /// Advances the streams of a cooperative device. Returns true if anything moved; false for other
  /// devices. One thread at a time.
  virtual bool progress() = 0;
};

}  // namespace hetccl::device
