/// A GPU's streams and events, through torch's vendor-neutral interface. Nothing here depends on
/// CUDA, so one binary serves torch with and without GPUs.
#pragma once

#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "communicator.h"

namespace hetccl::torch_backend {

/// Number of GPUs of `type` that this process sees; 0 if torch was built without support for them.
[[nodiscard]] c10::DeviceIndex device_count(c10::DeviceType type);
/// Whether this process has used its current device of `type`.
[[nodiscard]] bool uses_current_device(c10::DeviceType type);
[[nodiscard]] c10::Device current_device(c10::DeviceType type);
/// The device's name in the C API.
[[nodiscard]] std::string name_of(c10::Device device);

/// Calls `done` until it returns true: often at first, later every millisecond. Returns false once
/// `timeout` has passed; a negative timeout means no limit.
[[nodiscard]] bool poll_until(const std::function<bool()>& done, std::chrono::milliseconds timeout);

/// Events of one GPU, kept for reuse, because creating and freeing one is a driver call.
/// Thread-safe.
class Events {
 public:
  explicit Events(c10::Device device);
  ~Events();
  Events(const Events&) = delete;
  Events& operator=(const Events&) = delete;

  /// Returns a reused event, or a new one.
  [[nodiscard]] c10::Event take();
  void give_back(c10::Event event) noexcept;

 private:
  const c10::Device device_;
  const pid_t owner_;
  std::mutex mutex_;
  std::vector<c10::Event> idle_;
};

/// A point on a stream. Any thread may use and free it.
class Mark {
 public:
  Mark(std::shared_ptr<Events> events, const c10::Stream& stream);
  ~Mark();
  Mark(const Mark&) = delete;
  Mark& operator=(const Mark&) = delete;

  /// Also true if the device has failed, since nothing will change then.
  [[nodiscard]] bool reached() const noexcept;
  /// Whether `reached` has found that the device failed: it is unknown whether the stream's work is
  /// done.
  [[nodiscard]] bool failed() const noexcept { return failed_.load(std::memory_order_acquire); }
  /// Makes `stream` wait for the mark; the host does not wait.
  void block(const c10::Stream& stream) const;

 private:
  const std::shared_ptr<Events> events_;
  c10::Event event_;
  const pid_t owner_;
  mutable std::atomic<bool> failed_{false};
};
using Marks = std::vector<std::shared_ptr<const Mark>>;

[[nodiscard]] bool all_reached(const Marks& marks);
[[nodiscard]] bool any_failed(const Marks& marks);
/// Returns when all marks are reached; never returns once the process ends. For detached threads;
/// `device` stays their current device.
void await_in_background(const Marks& marks, c10::Device device);

/// The streams of one communicator, its own and the caller's. Thread-safe.
class DeviceStreams {
 public:
  explicit DeviceStreams(c10::Device device);

  [[nodiscard]] c10::Device device() const { return device_; }
  /// The calling thread's current stream.
  [[nodiscard]] c10::Stream current() const { return impl_.getStream(device_); }
  /// Another stream, which nobody waits for.
  [[nodiscard]] c10::Stream another() const { return impl_.getStreamFromGlobalPool(device_); }
  /// The stream of an order. For Several: an idle one, unless many are in use.
  [[nodiscard]] c10::Stream of(const OrderKey& order);
  /// Marks the current end of `stream`, which must be on its device.
  [[nodiscard]] std::shared_ptr<const Mark> mark(const c10::Stream& stream);
  /// Remembers `mark` as the last one of `stream`.
  void note(const c10::Stream& stream, std::shared_ptr<const Mark> mark);
  /// Waits until all noted marks are reached. Returns false once `timeout` has passed.
  [[nodiscard]] bool drain(std::chrono::milliseconds timeout);

 private:
  static constexpr size_t kMostOfSeveral = 16;  ///< torch's pool has 32 streams
  [[nodiscard]] c10::Stream of_several();

  const c10::Device device_;
  const c10::impl::VirtualGuardImpl impl_;
  const std::shared_ptr<Events> events_;
  std::mutex mutex_;
  std::map<OrderKey, c10::Stream> streams_;
  std::vector<c10::Stream> several_;
  std::map<c10::StreamId, std::shared_ptr<const Mark>> last_;
};

}  // namespace hetccl::torch_backend
