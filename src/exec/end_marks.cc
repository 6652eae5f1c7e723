#include "exec/end_marks.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <new>

namespace hetccl::exec {
namespace {

// So many calls share the price of a flag.
constexpr uint32_t kMarksOfAFlag = 32;
// A call that none follows is known to have ended this much later.
constexpr auto kPatience = std::chrono::milliseconds(1);

}  // namespace

Settler::Settler() {
  // All signals blocked: they belong to the user's threads.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { run(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Settler::~Settler() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  posted_.notify_one();
  thread_.join();
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
  pthread_setname_np(pthread_self(), "hetccl-settler");
  std::unique_lock lock(mutex_);
  for (;;) {
    posted_.wait(lock, [this] { return stop_ || !waiting_.empty(); });
    if (stop_) return;
    current_ = waiting_.front();
    waiting_.pop_front();
    lock.unlock();
    current_->settle();
    lock.lock();
    current_ = nullptr;
    settled_.notify_all();
  }
}

EndMarks::EndMarks(device::Device& device, device::Stream& aside, Settler& settler)
    : device_(device), aside_(aside), settler_(settler), memory_(device, Arena::Kind::Pinned) {}

EndMarks::~EndMarks() {
  settler_.forget(*this);
}

Result<std::unique_ptr<EndMarks>> EndMarks::create(device::Device& device, device::Stream& aside,
                                                   Settler& settler) {
  std::unique_ptr<EndMarks> marks(new EndMarks(device, aside, settler));
  HETCCL_TRY(marks->memory_.reserve(sizeof(device::Flag)));
  marks->ended_ = new (marks->memory_.data()) device::Flag();
  HETCCL_ASSIGN(marks->event_, device.create_event());
  return marks;
}

Status EndMarks::add(uint32_t mark, device::Stream& stream, TimePoint now) {
  std::lock_guard lock(mutex_);
  if (failed()) return failure_;
  // Where the event is about to tell of another stream, what it told so far is settled first.
  Status status;
  if (added_ != settled_ && stream_ != stream.native()) status = settle_added();
  if (status.ok()) status = device_.record(*event_, stream);
  stream_ = stream.native();
  added_ = mark;
  if (status.ok() && added_ - settled_ >= kMarksOfAFlag) status = settle_added();
  if (!status.ok()) {
    fail(status);
  } else if (added_ != settled_ && unsettled_since_.load(std::memory_order_relaxed) == 0) {
    unsettled_since_.store(std::max<Duration::rep>(now.time_since_epoch().count(), 1),
                           std::memory_order_release);
  }
  return status;
}

void EndMarks::look(TimePoint now) {
  const Duration::rep since = unsettled_since_.load(std::memory_order_acquire);
  if (since == 0 || now.time_since_epoch() - Duration(since) < kPatience) return;
  if (!asked_.exchange(true, std::memory_order_acq_rel)) settler_.post(*this);
}

void EndMarks::settle() {
  std::lock_guard lock(mutex_);
  asked_.store(false, std::memory_order_release);
  if (added_ == settled_) return;
  const Status status = settle_added();
  if (!status.ok()) fail(status);
}

Status EndMarks::settle_added() {
  settled_ = added_;
  unsettled_since_.store(0, std::memory_order_release);
  HETCCL_TRY(device_.wait(aside_, *event_));
  return device_.write_flag(aside_, *ended_, added_);
}

void EndMarks::fail(const Status& status) {
  failure_ = status;
  settled_ = added_;
  unsettled_since_.store(0, std::memory_order_release);
  failed_.store(true, std::memory_order_release);
}

}  // namespace hetccl::exec
