// The device seam: memory, pinned host memory, streams, events, host flags, copies and reductions.
//
// exec drives every device through this interface in the same way: it enqueues all work of a
// collective on streams at once, and orders it against the wire by *flags*, words in mapped memory
// that a stream waits for or writes and that the progress engine polls or writes. No call here
// waits for device work, and the progress engine makes none of them except `progress`.
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

/// Declared abilities; exec and comm ask for these, never for a vendor.
enum Capability : uint32_t {
  kHostAccessible = 1U
      << 0,            ///< host threads and transports may read and write device memory directly
  kKernels = 1U << 1,  ///< `reduce` works; without it the vendor library reduces, or the host
  kCooperative = 1U << 2,    ///< streams advance only inside `progress`
  kDefaultStream = 1U << 3,  ///< a null native stream is one: the vendor's default stream
  /// `reduce` takes encoded operands (base/encoding.h), and averages of scaled floats that it
  /// divides by no whole number (Divisor::scaled).
  kEncodes = 1U << 4,
  kBatches = 1U << 5,  ///< `run` launches short work together
};

/// A word in mapped host memory that orders a stream against the host. Compared cyclically, as by
/// cuStreamWaitValue32(GEQ): a wait for `value` is over once int32_t(word - value) >= 0.
struct alignas(64) Flag {
  std::atomic<uint32_t> word{0};
  [[nodiscard]] bool reached(uint32_t value) const {
    return static_cast<int32_t>(word.load(std::memory_order_acquire) - value) >= 0;
  }
};
/// What abort writes into a flag: ends every wait, since no counter of an operation gets near it.
inline constexpr uint32_t kFlagAborted = 1U << 30;

/// An in-order queue of device work. Opaque to all but its Device.
class Stream {
 public:
  virtual ~Stream() = default;
  /// What the vendor's own library takes (cudaStream_t, hipStream_t; TaskQueue* for host).
  [[nodiscard]] virtual void* native() const = 0;
};

/// A point in a stream. Opaque to all but its Device.
class Event {
 public:
  virtual ~Event() = default;
};

/// What `Device::reduce` computes, bit for bit; see base/reduce.h.
using Reduction = hetccl::Reduction;

/// A piece of a stream's work, for `Device::run`.
struct StreamWork {
  enum class Kind : uint8_t { Wait, Write, Copy, Reduce } kind{};
  Flag* flag = nullptr;  ///< Wait, Write
  uint32_t value = 0;
  Reduction reduction{};  ///< Copy: `count` bytes from its one source
};

/// Memory that was allocated, or mapped, at once.
struct Allocation {
  std::byte* base = nullptr;
  size_t bytes = 0;
  uint64_t id = 0;         ///< no other allocation of the process has it, or had it before
  bool on_device = false;  ///< else it is the host's, which others reach at its address
};

/// A dma-buf: a descriptor by which other devices reach memory.
struct DmaBuf {
  Fd fd;
  size_t offset = 0;  ///< where the memory begins in it
};

/// One accelerator, or the host. Thread-safe unless noted. Errors: SystemError with the vendor's
/// text.
class Device {
 public:
  virtual ~Device() = default;
  [[nodiscard]] virtual uint32_t capabilities() const = 0;
  /// "host", "cuda", "hip": with the model and architecture these fill in RankInfo.
  [[nodiscard]] virtual std::string vendor() const = 0;
  [[nodiscard]] virtual std::string model() const = 0;
  [[nodiscard]] virtual std::string architecture() const = 0;
  /// Where it is plugged in, as "0000:3b:00.0"; empty where it is not.
  [[nodiscard]] virtual std::string bus_id() const { return {}; }
  /// How many thread blocks run at once at least, one each; 0: unknown.
  [[nodiscard]] virtual int multiprocessors() const { return 0; }
  /// Whether `reduce`, where the device has kernels, combines elements of `type` by `op`.
  [[nodiscard]] virtual bool supports(DataType type, RedOp op) const {
    return is_valid(type) && is_valid(op) && applies(op, type);
  }

  virtual Result<void*> allocate(size_t bytes) = 0;
  /// No device work uses it any more, or for pinned memory either.
  virtual void free(void* memory) = 0;
  /// Page-locked host memory that the device can read and write; zeroed. Flags live here.
  virtual Result<void*> allocate_pinned(size_t bytes) = 0;
  virtual void free_pinned(void* memory) = 0;

  /// Has so much memory at hand, pinned and of the device, of which later allocations take without
  /// waiting for anything. It may itself wait for the device.
  virtual Status reserve(size_t pinned_bytes, size_t device_bytes) {
    static_cast<void>(pinned_bytes), static_cast<void>(device_bytes);
    return {};
  }
  /// Pins memory that the process has mapped, so that it is as allocate_pinned's, until `unpin`.
  /// Both may wait for the device. `bytes` are whole pages.
  virtual Status pin(void* memory, size_t bytes) = 0;
  virtual void unpin(void* memory) = 0;

  /// The allocation that `address` lies in, where other devices, such as network cards, may reach
  /// it; else nothing. Brief.
  [[nodiscard]] virtual std::optional<Allocation> find_allocation(const void* address) {
    static_cast<void>(address);
    return {};
  }
  /// Exports an allocation on the device, which lives as long as others use the dma-buf, even if it
  /// is freed. Unsupported where the device has no dma-bufs.
  virtual Result<DmaBuf> export_memory(const Allocation& allocation) {
    static_cast<void>(allocation);
    return error(ErrorCode::Unsupported, "%s exports no memory", vendor().c_str());
  }
  /// Whether streams may miss what another device has written to its memory until that device has
  /// read from there, too.
  [[nodiscard]] virtual bool needs_flush() const { return false; }

  virtual Result<std::unique_ptr<Stream>> create_stream() = 0;
  /// A Stream for the user's own native stream (not owned). Null is InvalidArgument without
  /// kDefaultStream.
  virtual Result<std::unique_ptr<Stream>> wrap_stream(void* native) = 0;
  /// Whether what is enqueued on a native stream becomes part of a graph, to run later or more than
  /// once.
  virtual bool is_capturing(void* native) {
    static_cast<void>(native);
    return false;
  }
  virtual Result<std::unique_ptr<Event>> create_event() = 0;

  // Enqueueing: returns at once; work of one stream runs in order. Calls on one stream need the
  // caller's own order.
  virtual Status record(Event& event, Stream& stream) = 0;
  virtual Status wait(Stream& stream, Event& event) = 0;
  virtual Status wait_flag(Stream& stream, Flag& flag, uint32_t value) = 0;
  virtual Status write_flag(Stream& stream, Flag& flag, uint32_t value) = 0;
  /// Device or pinned memory on either side.
  virtual Status copy(Stream& stream, void* dst, const void* src, size_t bytes) = 0;
  /// The same; a short one begins sooner where it is a kernel, whose launch may wait for what the
  /// stream does before (CUDA_LAUNCH_BLOCKING=1).
  virtual Status copy_soon(Stream& stream, void* dst, const void* src, size_t bytes) {
    return copy(stream, dst, src, bytes);
  }
  /// Many copies among device and pinned memory, none of which touches what another does: short
  /// ones begin together.
  virtual Status copy_all(Stream& stream, std::span<const Copy> copies) {
    for (const Copy& one : copies) HETCCL_TRY(copy(stream, one.dst, one.src, one.bytes));
    return {};
  }
  virtual Status reduce(Stream& stream, const Reduction& reduction) = 0;
  /// Enqueues `work` in its order, as few launches as may be. With `spins` a kernel may wait for
  /// flags: where no other process takes turns on the device. SystemError without kBatches.
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
  /// Runs `function(argument)` on a host thread once the stream gets there; the stream goes on when
  /// it has returned. It must neither wait nor call a device.
  virtual Status call_host(Stream& stream, void (*function)(void*), void* argument) = 0;

  /// Advances the streams of a cooperative device: true when anything moved. One thread at a time.
  /// Others: false.
  virtual bool progress() = 0;
};

}  // namespace hetccl::device
