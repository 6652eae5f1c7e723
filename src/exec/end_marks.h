// Tells the host when calls on a device's streams have ended, at little cost to the caller and to
// the streams.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>

#include "base/clock.h"
#include "device/device.h"
#include "exec/arena.h"

namespace hetccl::exec {

class EndMarks;

/// Settles marks on a thread of its own, because a driver call may block and the engine must not.
/// Thread-safe.
class Settler {
 public:
  static Result<std::unique_ptr<Settler>> create();
  ~Settler();
  Settler(const Settler&) = delete;
  Settler& operator=(const Settler&) = delete;

  /// Queues one settling of `marks`. Does not block.
  void post(EndMarks& marks);
  /// Afterwards the settler does not touch `marks`.
  void forget(EndMarks& marks);

 private:
  Settler() = default;
  void run();

  std::mutex mutex_;  // guards what follows
  std::condition_variable posted_, settled_;
  std::deque<EndMarks*> waiting_;
  EndMarks* current_ = nullptr;
  bool stop_ = false;
  std::thread thread_;
};

/// Marks the ends of calls. A flag behind each call would cost the caller 1 to 2 us, and the stream
/// 4 us until the write is visible everywhere (docs/design/0007-gpus.md). So an event, which is
/// nearly free, is recorded behind each call, and one flag serves many calls. The flag is written
/// on a separate stream: when enough calls are marked, or a while later by the settler's thread. (A
/// stream is identified by its handle. If several streams share a handle, marks rely on the library
/// running a communicator's calls in order.)
class EndMarks {
 public:
  /// `settler` must outlive it.
  static Result<std::unique_ptr<EndMarks>> create(device::Device& device, Settler& settler);
  ~EndMarks();
  EndMarks(const EndMarks&) = delete;
  EndMarks& operator=(const EndMarks&) = delete;

  /// Returns the next mark, for `add`. One thread at a time, the same as for `add`.
  uint32_t next() { return ++last_; }
  /// Places `mark` behind the work enqueued on `stream`. If this fails, the mark never completes
  /// and later marks ignore it.
  Status add(uint32_t mark, device::Stream& stream, TimePoint now);
  /// Returns whether the call of `mark` and all earlier ones have ended. Any thread.
  [[nodiscard]] bool ended(uint32_t mark) const { return ended_->reached(mark) || failed(); }
  /// Returns whether a flag is written behind `mark`, so that its end is known at once.
  [[nodiscard]] bool settled(uint32_t mark) const {
    return static_cast<int32_t>(settled_.load(std::memory_order_acquire) - mark) >= 0;
  }
  /// Called regularly by the driving thread. Asks the settler to settle marks that are old enough.
  void look(TimePoint now);
  /// Asks the settler to settle all marks.
  void ask();
  /// Writes a flag behind all added marks. It may block, so the driving thread must not call it.
  /// After an error all marks count as ended, and `failed` is set.
  void settle();
  [[nodiscard]] bool failed() const { return failed_.load(std::memory_order_acquire); }
  /// Returns the reason, once `failed`.
  [[nodiscard]] const Status& failure() const { return failure_; }

 private:
  friend class Settler;
  EndMarks(device::Device& device, Settler& settler);
  void answer();          // fulfils the request of `ask`
  Status settle_added();  // requires mutex_; after an error sets `failed`

  device::Device& device_;
  Settler& settler_;
  std::unique_ptr<device::Stream> aside_;
  std::unique_ptr<Arena> memory_;
  device::Flag* ended_ = nullptr;  // counts marks
  uint32_t last_ = 0;

  std::mutex mutex_;  // guards what follows
  std::unique_ptr<device::Event> event_;
  const void* stream_ = nullptr;  // the stream that `event_` was recorded on
  uint32_t added_ = 0;
  Status failure_;  // fixed once `failed_`

  std::atomic<uint32_t> settled_{0};               // written with mutex_ held
  std::atomic<Duration::rep> unsettled_since_{0};  // 0: all marks are settled
  std::atomic<bool> asked_{false}, failed_{false};
};

}  // namespace hetccl::exec
