#include "comm/verdict.h"

#include <utility>

namespace hetccl::comm {

void Verdict::report(ErrorCode code, int culprit, const std::string& reason) {
  log_.debug("reporting: %s", reason.c_str());
  session_->report({code, culprit, reason});
}

void Verdict::ask_why(ErrorCode code, int culprit, const exec::Stall& stall) {
  log_.debug("asking why: %s: %s", stall.what.c_str(), stall.detail.c_str());
  session_->report_stall(bootstrap::Stall{{code, culprit, stall.what},
                                          stall.sequence,
                                          stall.call,
                                          format("rank %d: %s", log_.rank, stall.detail.c_str())});
}

bool Verdict::settle(Status cause) {
  std::lock_guard lock(mutex_);
  return settle_locked(std::move(cause));
}

void Verdict::settle_without_memory() noexcept {
  std::lock_guard lock(mutex_);
  settle_locked(std::move(out_of_memory_));
}

bool Verdict::settle_locked(Status cause) {
  if (!cause_.ok()) return false;
  cause_ = std::move(cause);
  last_wait_ends_ = engine_.clock().now() + kLastWait;
  failed_.store(true, std::memory_order_release);
  settled_.notify_all();
  return true;
}

void Verdict::replace(Status cause) {
  std::lock_guard lock(mutex_);
  cause_ = std::move(cause);
  failed_.store(true, std::memory_order_release);
}

Status Verdict::cause() const {
  std::lock_guard lock(mutex_);
  return cause_;
}

void Verdict::wait(std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  settled_.wait_for(lock, limit, [&] { return !cause_.ok(); });
}

Status Verdict::await() {
  wait(limit_);
  const Status found = cause();
  if (!found.ok()) return found;
  return error(ErrorCode::RemoteError, "rank %d: a failure was reported, and no cause came back",
               log_.rank);
}

}  // namespace hetccl::comm
