#include "exec/end_marks.h"

#include <algorithm>
#include <new>
#include <utility>

#include "base/keep.h"
#include "base/thread.h"

namespace hetccl::exec {
namespace {

// The number of calls that share one flag.
constexpr uint32_t kMarksOfAFlag = 32;
// The time after which the end of a call without successors is settled.
constexpr auto kPatience = std::chrono::milliseconds(1);

}  // namespace

Result<std::unique_ptr<Settler>> Settler::create() {
  std::unique_ptr<Settler> settler(new Settler);
  HETCCL_ASSIGN(settler->thread_,
                start_thread("hetccl-settler", [raw = settler.get()] { raw->run(); }));
  return settler;
}

Settler::~Settler() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  posted_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void Settler::post(EndMarks& marks) {
  {
    std::lock_guard lock(mutex_);
    waiting_.push_back(&marks);
  }
  posted_.notify_one();
}

void Settler::forget(EndMarks& marks) {
  std::unique_lock lock(mutex_);
  std::erase(waiting_, &marks);
  settled_.wait(lock, [&] { return current_ != &marks; });
}

void Settler::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    posted_.wait(lock, [this] { return stop_ || !waiting_.empty(); });
    if (stop_) return;
    current_ = waiting_.front();
    waiting_.pop_front();
    lock.unlock();
    current_->answer();
    lock.lock();
    current_ = nullptr;
    settled_.notify_all();
  }
}

EndMarks::EndMarks(device::Device& device, Settler& settler)
    : device_(device),
      settler_(settler),
      memory_(std::make_unique<Arena>(device, Arena::Kind::Pinned)) {}

EndMarks::~EndMarks() {
  settler_.forget(*this);
  // The device may still write there, so the memory must not be reused.
  if (failed()) keep_until_exit(std::move(memory_));
}

Result<std::unique_ptr<EndMarks>> EndMarks::create(device::Device& device, Settler& settler) {
  std::unique_ptr<EndMarks> marks(new EndMarks(device, settler));
  HETCCL_TRY(marks->memory_->reserve(sizeof(device::Flag)));
  marks->ended_ = new (marks->memory_->data()) device::Flag();
  HETCCL_ASSIGN(marks->aside_, device.create_stream());
  HETCCL_ASSIGN(marks->event_, device.create_event());
  return marks;
}

Status EndMarks::add(uint32_t mark, device::Stream& stream, TimePoint now) {
  std::lock_guard lock(mutex_);
  if (failed()) return failure_;
  // Before the event moves to another stream, settle the marks that it stands for.
  if (added_ != settled_ && stream_ != stream.native()) HETCCL_TRY(settle_added());
  HETCCL_TRY(device_.record(*event_, stream));
  stream_ = stream.native();
  added_ = mark;
  if (added_ - settled_ >= kMarksOfAFlag) return settle_added();
  if (unsettled_since_.load(std::memory_order_relaxed) == 0) {
    unsettled_since_.store(std::max<Duration::rep>(now.time_since_epoch().count(), 1),
                           std::memory_order_release);
  }
  return {};
}

void EndMarks::look(TimePoint now) {
  const Duration::rep since = unsettled_since_.load(std::memory_order_acquire);
  if (since != 0 && now.time_since_epoch() - Duration(since) >= kPatience) ask();
}

void EndMarks::ask() {
  if (!asked_.exchange(true, std::memory_order_acq_rel)) settler_.post(*this);
}

void EndMarks::answer() {
  asked_.store(false, std::memory_order_release);
  settle();
}

void EndMarks::settle() {
  std::lock_guard lock(mutex_);
  if (added_ != settled_ && !failed()) static_cast<void>(settle_added());  // see `failure`
}

Status EndMarks::settle_added() {
  unsettled_since_.store(0, std::memory_order_release);
  Status status = device_.wait(*aside_, *event_);
  if (status.ok()) status = device_.write_flag(*aside_, *ended_, added_);
  settled_.store(added_, std::memory_order_release);
  if (!status.ok()) {
    failure_ = status;
    failed_.store(true, std::memory_order_release);
  }
  return status;
}

}  // namespace hetccl::exec
