// How a host learns that calls on a device's streams have ended, for little of the caller's and of
// the streams' time.
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

/// A thread for what may wait inside a driver, as the engine's must not: it settles marks.
/// Thread-safe.
class Settler {
 public:
  static Result<std::unique_ptr<Settler>> create();
  ~Settler();
  Settler(const Settler&) = delete;
  Settler& operator=(const Settler&) = delete;

  /// Does not block. Once for each time that `marks` asks.
  void post(EndMarks& marks);
  /// After its return `marks` is not touched.
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

/// A flag behind each call would cost its caller 1 to 2 us, and its stream the 4 us in which all
/// memory gets to see it (docs/design/0007-gpus.md). So an event is recorded behind each, which
/// costs next to nothing, and a flag is written behind many, on a stream that nobody waits for:
/// when there are enough, or a while later, by the settler's thread. (A stream is known by its
/// handle. Where several are one handle, marks rely on the library, which runs a communicator's
/// calls in the order in which they came.)
class EndMarks {
 public:
  /// `settler` outlives it.
  static Result<std::unique_ptr<EndMarks>> create(device::Device& device, Settler& settler);
  ~EndMarks();
  EndMarks(const EndMarks&) = delete;
  EndMarks& operator=(const EndMarks&) = delete;

  /// The next mark, for `add`. By one thread at a time, as `add`.
  uint32_t next() { return ++last_; }
  /// Places `mark` behind what is enqueued on `stream`. After an error that mark is in none's way,
  /// and has no end of its own.
  Status add(uint32_t mark, device::Stream& stream, TimePoint now);
  /// Whether that mark's call has ended, and all before it. Any thread.
  [[nodiscard]] bool ended(uint32_t mark) const { return ended_->reached(mark) || failed(); }
  /// Whether a flag is written behind that mark: it tells of the end at once.
  [[nodiscard]] bool settled(uint32_t mark) const {
    return static_cast<int32_t>(settled_.load(std::memory_order_acquire) - mark) >= 0;
  }
  /// Whoever drives, now and then: has the settler settle what is a while old.
  void look(TimePoint now);
  /// Has the settler settle what there is.
  void ask();
  /// Writes the flag behind what was added. Any thread but who drives: it may block. After an error
  /// all marks count as ended, and `failed`.
  void settle();
  [[nodiscard]] bool failed() const { return failed_.load(std::memory_order_acquire); }
  /// Why, once `failed`.
  [[nodiscard]] const Status& failure() const { return failure_; }

 private:
  friend class Settler;
  EndMarks(device::Device& device, Settler& settler);
  void answer();          // what was asked for
  Status settle_added();  // with mutex_ held; after an error all `failed`

  device::Device& device_;
  Settler& settler_;
  std::unique_ptr<device::Stream> aside_;
  std::unique_ptr<Arena> memory_;
  device::Flag* ended_ = nullptr;  // counts marks
  uint32_t last_ = 0;

  std::mutex mutex_;  // guards what follows
  std::unique_ptr<device::Event> event_;
  const void* stream_ = nullptr;  // that `event_` was recorded on
  uint32_t added_ = 0;
  Status failure_;  // not changed once `failed_`

  std::atomic<uint32_t> settled_{0};               // written with mutex_ held
  std::atomic<Duration::rep> unsettled_since_{0};  // 0: all is settled
  std::atomic<bool> asked_{false}, failed_{false};
};

}  // namespace hetccl::exec
