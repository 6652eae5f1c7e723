#include "host_work.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <tuple>

namespace hetccl::torch_backend {
namespace {

using Nanoseconds = std::chrono::nanoseconds;

thread_local int64_t waited_ns = 0;

// Adds the time until its destruction to this thread's waiting time.
class Waiting {
 public:
  Waiting() = default;
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;
  ~Waiting() {
    const auto time = std::chrono::duration_cast<Nanoseconds>(Clock::now() - begin_);
    waited_ns += time.count();
  }

 private:
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin_ = Clock::now();
};

}  // namespace

double seconds_waited() {
  const Nanoseconds time(waited_ns);
  return std::chrono::duration<double>(time).count();
}

HostWork::~HostWork() {
  keep_until_complete();
}

void HostWork::launch(std::chrono::milliseconds timeout, bool blocking) {
  std::optional<Waiting> waiting;
  if (blocking) waiting.emplace();
  for (const auto& member : request_.members) {
    const auto& works = static_cast<const HostWork&>(*member).works_;
    works_.insert(works_.end(), works.begin(), works.end());
  }
  launched_ = !request_.members.empty();
  if (!request_.calls.empty()) {
    hetcclWork_t work{};
    const auto failure =
        communicator_->start(request_.calls, nullptr, timeout, blocking ? nullptr : &work);
    works_.push_back(work);
    request_.calls.clear();
    if (failure) {
      launched_ = launched_ || !reached();  // some calls may have started
      request_.drop_results();
      const std::exception_ptr error = error_of(*failure);
      finish(error);
      std::rethrow_exception(error);
    }
    launched_ = true;
  }
  if (blocking && reached()) settle();
  // With a future the profiler's event ends when the collective does, not when somebody queries it.
  if (recordFunctionEndCallback_) std::ignore = getFuture();
}

bool HostWork::reached() const {
  return communicator_->forked() ||
         std::all_of(works_.begin(), works_.end(), Communicator::reached);
}

std::function<void()> HostWork::until_reached() const {
  return [works = works_] { std::ignore = Communicator::wait_all(works, kForever); };
}

bool HostWork::wait(std::chrono::milliseconds timeout) {
  if (!settled()) {
    const Waiting waiting;
    const bool limited = timeout > kNoTimeout;
    if (!Communicator::wait_all(works_, limited ? timeout : kForever)) {
      std::rethrow_exception(error_of_wait(timeout));
    }
    settle();
  }
  check();
  return true;
}

}  // namespace hetccl::torch_backend
