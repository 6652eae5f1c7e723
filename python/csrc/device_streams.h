/// Streams and events of a GPU by torch's own interface for all vendors: nothing here is CUDA's, so
/// that one binary serves a torch for GPUs and one without.
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

/// How many GPUs of `type` this process sees; 0 where torch was built without them.
[[nodiscard]] c10::DeviceIndex device_count(c10::DeviceType type);
/// True when this process has used its current device of `type`.
[[nodiscard]] bool uses_current_device(c10::DeviceType type);
[[nodiscard]] c10::Device current_device(c10::DeviceType type);
/// As the C API calls it.
[[nodiscard]] std::string name_of(c10::Device device);

/// Calls `done` until it is true, first often and then every millisecond. False when `timeout` has
/// passed first; no limit when it is negative.
[[nodiscard]] bool poll_until(const std::function<bool()>& done, std::chrono::milliseconds timeout);

/// Events of one GPU, which are used again: making and freeing one is work for the driver.
/// Thread-safe.
class Events {
 public:
  explicit Events(c10::Device device);
  ~Events();
  Events(const Events&) = delete;
  Events& operator=(const Events&) = delete;

  /// One that was given back, else a new one.
  [[nodiscard]] c10::Event take();
  void give_back(c10::Event event) noexcept;

 private:
  const c10::Device device_;
  const pid_t owner_;
  std::mutex mutex_;
  std::vector<c10::Event> idle_;
};

/// A point on a stream. May be used and freed by any thread.
class Mark {
 public:
  Mark(std::shared_ptr<Events> events, const c10::Stream& stream);
  ~Mark();
  Mark(const Mark&) = delete;
  Mark& operator=(const Mark&) = delete;

  /// True also when the device has failed: nothing will change any more.
  [[nodiscard]] bool reached() const noexcept;
  /// `reached` has met a failed device: what the stream was given is not known to be done.
  [[nodiscard]] bool failed() const noexcept { return failed_.load(std::memory_order_acquire); }
  /// `stream` waits for it; the host does not.
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
/// Returns when all are reached, never once the process ends. For threads that nobody joins, which
/// stand on `device` afterwards.
void await_in_background(const Marks& marks, c10::Device device);

/// The streams of one communicator: those it has for itself, and the caller's. Thread-safe.
class DeviceStreams {
 public:
  explicit DeviceStreams(c10::Device device);

  [[nodiscard]] c10::Device device() const { return device_; }
  /// The one that the calling thread computes on.
  [[nodiscard]] c10::Stream current() const { return impl_.getStream(device_); }
  /// Any other, which nobody waits for.
  [[nodiscard]] c10::Stream another() const { return impl_.getStreamFromGlobalPool(device_); }
  /// The one of an order; of several, one that is idle, unless many are in use.
  [[nodiscard]] c10::Stream of(const OrderKey& order);
  /// Where `stream` is now; on its device.
  [[nodiscard]] std::shared_ptr<const Mark> mark(const c10::Stream& stream);
  /// Remembers where `stream` has got to.
  void note(const c10::Stream& stream, std::shared_ptr<const Mark> mark);
  /// Waits until all that was noted is reached. False when `timeout` has passed first.
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
