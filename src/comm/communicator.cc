#include "comm/communicator.h"

#include <tuple>

#include "base/encoding.h"
#include "base/keep.h"

namespace hetccl::comm {

using std::chrono::milliseconds;

Communicator::~Communicator() {
  cancel_->set(error(Code::Aborted, "the communicator was destroyed"));
  chores_.wait();
  if (channels_ != nullptr) channels_->stop();
  if (pairs_ != nullptr) pairs_->stop(TimePoint::max());
  bool ended = true;
  if (executor_ != nullptr) {
    if (!executor_->idle()) stop(error(Code::Aborted, "the communicator was destroyed"));
    ended = wait_until_idle();
  }
  if (session_ != nullptr) {
    session_->leave(recorder_.called());
    Channels::forget_visitors(runtime_, *session_);
  }
  write_trace();
  if (executor_ != nullptr) {
    runtime_.engine().remove(*executor_);
  }
  dismantle(ended);
}

// `ended`: nothing is in flight. Else the device may write to any of it, whenever it goes on.
void Communicator::dismantle(bool ended) {
  std::unique_ptr<exec::Executor> executor;
  runtime_.engine().exclusively([&] { executor = std::move(executor_); });
  if (!ended) {
    log_.warn(
        "the device has not ended what was in flight %lld s after the communicator "
        "failed: its memory is kept until the process ends",
        static_cast<long long>(Verdict::kLastWait.count()));
    return keep_until_exit(std::tuple(std::move(executor), std::move(channels_), std::move(pairs_),
                                      std::move(ccl_), std::move(own_stream_)));
  }
  // Not where nobody drives: calls to drivers and libraries wait for work that others drive.
  executor.reset();
  if (channels_ != nullptr) channels_->close();
  if (pairs_ != nullptr) pairs_->close();
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

Status Communicator::recode(const device::Reduction& reduction, void* native_stream) {
  HETCCL_TRY(check_ready());
  if ((device_->capabilities() & device::kEncodes) == 0) {
    return error(Code::Unsupported,
                 "rank %d: its device, %s, has no kernels that encode: use host memory, with comm "
                 "NULL",
                 rank(), options_.device.c_str());
  }
  // Only the host has no default stream, and its memory is the caller's own.
  if (is_no_stream(native_stream)) {
    reduce_encoded(reduction, 0, reduction.count);
    return {};
  }
  // The caller's stream waits for it: it may take the whole GPU, not HETCCL_GPU_BLOCKS of it.
  constexpr uint16_t kManyBlocks = 1024;
  device::Reduction call = reduction;
  call.blocks = kManyBlocks;
  const std::lock_guard lock(launch_mutex_);
  HETCCL_ASSIGN(device::Stream * stream, stream_for(native_stream));
  HETCCL_TRY(device_->reduce(*stream, call));
  if (!on_device()) runtime_.engine().notify();
  return {};
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
  if (verdict_.failed()) return verdict_.await();
  if (phase_.load(std::memory_order_acquire) == Phase::Ready) return {};
  return error(Code::InvalidUsage, "rank %d: the communicator was finalized or destroyed", rank());
}

bool Communicator::in_progress() const {
  const Phase phase = phase_.load(std::memory_order_acquire);
  return phase == Phase::Opening || phase == Phase::Finalizing;
}

Status Communicator::finish_by(TimePoint deadline) {
  if (phase_.load(std::memory_order_acquire) == Phase::Opening) {
    cancel_->set(error(Code::Aborted, "it destroyed the communicator while that was being set up"));
    chores_.wait();
    if (phase_.load(std::memory_order_acquire) != Phase::Ready) return {};
  }
  chores_.wait();
  return drain(deadline);
}

Status Communicator::drain(TimePoint deadline) {
  if (phase_.load(std::memory_order_acquire) == Phase::Closed) return failure();
  runtime_.engine().notify();
  Status status;
  do {
    wait_until_idle();
    status = failure();
  } while (!close());
  if (tuning_ != nullptr) tuning_->finish();
  keep_learnt();
  pairs_->stop(deadline);  // they agree by notes, of which there are none after that
  session_->leave(recorder_.called());
  return status;
}

Status Communicator::finalize() {
  HETCCL_TRY(check_ready());
  if (options_.blocking) return finish();
  phase_.store(Phase::Finalizing, std::memory_order_release);
  const Status posted = chores_.post([this] { static_cast<void>(drain(TimePoint::max())); });
  return posted.ok() ? posted : finish();
}

// A call that another thread still makes must not start: nobody would arbitrate its failure. False
// when one was faster.
bool Communicator::close() {
  std::lock_guard launch_lock(launch_mutex_);
  if (!executor_->idle() && !verdict_.failed()) return false;
  phase_.store(Phase::Closed, std::memory_order_release);
  return true;
}

void Communicator::shut_down(TimePoint deadline) {
  auto& engine = runtime_.engine();
  const auto busy = [&] {
    const Phase phase = phase_.load(std::memory_order_acquire);
    return phase == Phase::Opening || (phase != Phase::Closed && !executor_->idle());
  };
  engine.notify();
  engine.wait([&] { return !busy() || verdict_.failed(); }, deadline);
  if (busy() || verdict_.failed()) {
    abort("its process exited before the communicator's work was complete");
  } else {
    static_cast<void>(finish_by(deadline));
  }
  // A thread inside a vendor's library does not stand the end of its process.
  if (phase_.load(std::memory_order_acquire) == Phase::Closed && pairs_ != nullptr)
    pairs_->stop(deadline);
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
  verdict_.report(Code::Aborted, rank(), cause);
  // Channels close when the others know why: else they may report a lost connection first.
  verdict_.wait(milliseconds(1000));
  stop(Status(Code::Aborted, cause));
  chores_.wait();
  // No memory of the user is touched once nothing is in flight.
  wait_until_idle();
}

Statistics Communicator::statistics() {
  std::lock_guard lock(launch_mutex_);
  Statistics statistics = statistics_;
  if (programs_ != nullptr) statistics.plans = programs_->made();
  statistics.cross_bytes_sent = executor_->bytes_sent();
  return statistics;
}

}  // namespace hetccl::comm
