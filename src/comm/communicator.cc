#include "comm/communicator.h"

#include <tuple>

#include "base/keep.h"

namespace hetccl::comm {

using std::chrono::milliseconds;

Communicator::~Communicator() {
  cancel_->set(error(Code::Aborted, "the communicator was destroyed"));
  chores_.wait();
  for (Chores& connecting : connecting_) connecting.wait();
  bool ended = true;
  if (executor_ != nullptr) {
    if (!is_idle()) stop(error(Code::Aborted, "the communicator was destroyed"));
    ended = wait_until_idle();
  }
  if (session_ != nullptr) {
    session_->leave(recorder_.called());
    forget_visitors();
  }
  write_trace();
  if (executor_ != nullptr) {
    runtime_.engine().remove(*executor_);
    runtime_.engine().remove(*messages_);
  }
  dismantle(ended);
}

// `ended`: nothing is in flight. Else the device may write to any of it, whenever it goes on.
void Communicator::dismantle(bool ended) {
  std::unique_ptr<exec::Executor> executor;
  std::unique_ptr<exec::PointToPoint> messages;
  runtime_.engine().exclusively([&] {
    executor = std::move(executor_);
    messages = std::move(messages_);
  });
  if (!ended) {
    log_.warn(
        "the device has not ended what was in flight %lld s after the communicator "
        "failed: its memory is kept until the process ends",
        static_cast<long long>(kLastWait.count()));
    return keep_until_exit(std::tuple(std::move(executor), std::move(messages), std::move(windows_),
                                      std::move(message_windows_), std::move(window_share_),
                                      std::move(channels_), std::move(message_channels_),
                                      std::move(ccl_), std::move(own_stream_)));
  }
  // Calls to drivers and libraries wait for work that others drive. Channels are driven by them.
  executor.reset();
  messages.reset();
  windows_.clear();
  message_windows_.clear();
  window_share_.keep(0);
  runtime_.engine().exclusively([&] {
    channels_.clear();
    message_channels_.clear();
  });
  ccl_.reset();
}

Result<int> Communicator::create_pre_mul_sum(DataType type, const void* scalar, bool on_device) {
  HETCCL_TRY(known());
  if (on_device && (device_->capabilities() & device::kHostAccessible) == 0) {
    return error(Code::Unsupported,
                 "rank %d: the host cannot read a scalar in this device's memory: keep it in host "
                 "memory",
                 rank());
  }
  return red_ops_.create(type, scalar, on_device ? ScalarRead::AtCall : ScalarRead::Now);
}

Status Communicator::known() {
  const Phase phase = phase_.load(std::memory_order_acquire);
  if (phase == Phase::Opening) {
    return error(
        Code::InvalidUsage,
        "the communicator is still being set up: ask hetcclCommGetAsyncError until it is no "
        "longer hetcclInProgress");
  }
  return executor_ != nullptr ? Status() : failure();
}

Status Communicator::check_ready() {
  if (phase_.load(std::memory_order_acquire) == Phase::Opening) return known();
  if (failed_.load(std::memory_order_acquire)) return await_verdict();
  if (phase_.load(std::memory_order_acquire) == Phase::Ready) return {};
  return error(Code::InvalidUsage, "rank %d: the communicator was finalized or destroyed", rank());
}

bool Communicator::in_progress() const {
  const Phase phase = phase_.load(std::memory_order_acquire);
  return phase == Phase::Opening || phase == Phase::Finalizing;
}

Status Communicator::finish() {
  if (phase_.load(std::memory_order_acquire) == Phase::Opening) {
    cancel_->set(error(Code::Aborted, "it destroyed the communicator while that was being set up"));
    chores_.wait();
    if (phase_.load(std::memory_order_acquire) != Phase::Ready) return {};
  }
  chores_.wait();
  return drain();
}

Status Communicator::drain() {
  if (phase_.load(std::memory_order_acquire) == Phase::Closed) return failure();
  runtime_.engine().notify();
  Status status;
  do {
    wait_until_idle();
    status = failure();
  } while (!close());
  session_->leave(recorder_.called());
  return status;
}

Status Communicator::finalize() {
  HETCCL_TRY(check_ready());
  if (options_.blocking) return finish();
  phase_.store(Phase::Finalizing, std::memory_order_release);
  const Status posted = chores_.post([this] { static_cast<void>(drain()); });
  return posted.ok() ? posted : finish();
}

// A call that another thread still makes must not start: nobody would arbitrate its failure. False
// when one was faster.
bool Communicator::close() {
  std::lock_guard launch_lock(launch_mutex_);
  if (!is_idle() && !failed_.load(std::memory_order_acquire)) return false;
  phase_.store(Phase::Closed, std::memory_order_release);
  return true;
}

bool Communicator::settle(Status cause) {
  std::lock_guard lock(failure_mutex_);
  if (!failure_.ok()) return false;
  failure_ = std::move(cause);
  last_wait_ends_ = runtime_.engine().clock().now() + kLastWait;
  failed_.store(true, std::memory_order_release);
  verdict_.notify_all();
  return true;
}

void Communicator::shut_down(TimePoint deadline) {
  auto& engine = runtime_.engine();
  const auto busy = [&] {
    const Phase phase = phase_.load(std::memory_order_acquire);
    return phase == Phase::Opening || (phase != Phase::Closed && !is_idle());
  };
  engine.notify();
  engine.wait([&] { return !busy() || failed_.load(std::memory_order_acquire); }, deadline);
  if (busy() || failed_.load(std::memory_order_acquire)) {
    abort("its process exited before the communicator's work was complete");
  } else {
    static_cast<void>(finish());
  }
  write_trace();
}

void Communicator::abort(const std::string& why) {
  if (phase_.load(std::memory_order_acquire) == Phase::Opening) {
    cancel_->set(Status(Code::Aborted, why));
    chores_.wait();
  }
  const Phase phase = phase_.load(std::memory_order_acquire);
  if (phase == Phase::Opening || phase == Phase::Closed) return;
  const std::string cause = format("rank %d: %s", rank(), why.c_str());
  report(Code::Aborted, rank(), cause);
  {
    // Channels close when the others know why: else they may report a lost connection first.
    std::unique_lock lock(failure_mutex_);
    verdict_.wait_for(lock, milliseconds(1000), [&] { return !failure_.ok(); });
  }
  stop(Status(Code::Aborted, cause));
  chores_.wait();
  // No memory of the user is touched once nothing is in flight.
  wait_until_idle();
}

void Communicator::report(Code code, int culprit, const std::string& reason) {
  log_.debug("reporting: %s", reason.c_str());
  session_->report({code, culprit, reason});
}

void Communicator::on_fault(const exec::Fault& fault) {
  if (fault.stall) return ask_why(fault.status.code(), fault.rank, *fault.stall);
  report_own(fault.rank, fault.status);
}

// Where ranks of this cluster called different collectives, that is the cause. The library knows
// its own calls and the cluster's ranks only; all ranks are asked for the user's calls.
void Communicator::report_own(int culprit, const Status& status) {
  const auto between = ccl_->disagreement();
  if (!between) {
    return report(status.code(), culprit, format("rank %d: %s", rank(), status.message().c_str()));
  }
  const std::string call = position(between->number).call;
  const auto& members =
      topology().clusters()[static_cast<size_t>(topology().cluster_of(rank()))].ranks;
  const auto global = [&](int local) { return members[static_cast<size_t>(local)]; };
  ask_why(Code::InvalidUsage, -1,
          {between->number, call, "the ranks disagree on " + call,
           format("ranks %d and %d passed different counts or roots", global(between->rank),
                  global(between->other))});
}

void Communicator::ask_why(Code code, int culprit, const exec::Stall& stall) {
  log_.debug("asking why: %s: %s", stall.what.c_str(), stall.detail.c_str());
  session_->report_stall(bootstrap::Stall{{code, culprit, stall.what},
                                          stall.sequence,
                                          stall.call,
                                          format("rank %d: %s", rank(), stall.detail.c_str())});
}

void Communicator::on_left(int who, uint64_t called) {
  departures_.add(who, called);
  // Who is still setting up waits for it in vain.
  if (phase_.load(std::memory_order_acquire) != Phase::Opening) return;
  cancel_->set(
      error(Code::RemoteError, "rank %d left while the communicator was being set up", who));
}

bootstrap::Position Communicator::position(uint64_t sequence) const {
  const auto record = recorder_.find(sequence);
  return {recorder_.called(), recorder_.ended(),
          record ? describe(record->signature, sequence) : ""};
}

void Communicator::on_failure(const bootstrap::Failure& failure) {
  stop(Status(failure.code, failure.reason));
}

void Communicator::stop(Status status) {
  const Code code = status.code();
  const std::string cause = status.message();
  if (!settle(std::move(status))) return;
  cancel_->set(Status(code, cause));
  dump_failure();
  // Not with `launch_mutex_`: who launches may be held up by what only this ends.
  runtime_.engine().exclusively([&] {
    tell_failure(code, cause);
    if (measuring_ != nullptr) measuring_->abort();
    if (executor_ == nullptr) return;
    executor_->abort();
    messages_->abort();
  });
  runtime_.engine().notify();
}

Status Communicator::failure() {
  if (!failed_.load(std::memory_order_acquire)) {
    const Phase phase = phase_.load(std::memory_order_acquire);
    if (phase == Phase::Opening || phase == Phase::Closed) return {};
    const Status local = ccl_->async_error();
    if (local.ok()) return {};
    // Seen here first: results are worthless already, though the cause is not agreed yet.
    report_own(-1, local);
  }
  return await_verdict();
}

Status Communicator::await_verdict() {
  const auto limit = milliseconds(runtime_.config().liveness_ms + 1000);
  std::unique_lock lock(failure_mutex_);
  if (verdict_.wait_for(lock, limit, [&] { return !failure_.ok(); })) return failure_;
  return error(Code::RemoteError, "rank %d: a failure was reported, and no cause came back",
               rank());
}

Statistics Communicator::statistics() {
  std::lock_guard lock(launch_mutex_);
  Statistics statistics = statistics_;
  statistics.cross_bytes_sent = executor_->bytes_sent() + messages_->bytes_sent();
  return statistics;
}

}  // namespace hetccl::comm
