#include "comm/dispatch.h"

#include <tuple>

#include "base/encoding.h"
#include "base/keep.h"

namespace hetccl::comm {

Dispatch::Dispatch(Context& context, Membership& membership, Fabric& fabric, Chores& chores)
    : context_(context),
      membership_(membership),
      verdict_(membership.verdict()),
      fabric_(fabric),
      chores_(chores),
      timeout_ms_(context.options.timeout_ms > 0 ? context.options.timeout_ms
                                                 : context.config.timeout_ms),
      red_ops_(context.runtime.red_op_numbers()) {
  if (!context.config.trace.empty()) tracer_ = std::make_unique<exec::Tracer>();
}

Status Dispatch::open() {
  device_ = &fabric_.device();
  HETCCL_TRY(open_executor());
  HETCCL_TRY(fabric_.serve(*executor_));
  HETCCL_TRY(measure());  // nobody is through with it before all have come
  fabric_.attach(*executor_);
  return {};
}

// What every executor of this communicator has in common.
exec::ExecutorOptions Dispatch::executor_options() {
  exec::ExecutorOptions options;
  options.clock = &context_.engine().clock();
  options.device = device_;
  options.ccl = &fabric_.ccl();
  options.library = membership_.info(rank()).library;
  options.collectives = membership_.session().communicator();
  options.messages = Channels::messages_number(membership_.session());
  options.rank = rank();
  options.n_ranks = n_ranks();
  options.local_rank = topology().local_rank(rank());
  // A launch on a GPU may block until messages have moved, which nobody else would see to.
  if (on_device()) options.on_published = [this] { context_.engine().notify(true); };
  options.on_fault = [this](const exec::Fault& fault) { on_fault(fault); };
  return options;
}

Status Dispatch::open_executor() {
  // Most launches find what they need there, and ask no driver, which may wait for the device, and
  // so for ranks that wait for this one.
  if (topology().clusters().size() > 1) {
    HETCCL_TRY(device_->reserve(size_t{64} << 20U, size_t{32} << 20U));
  }
  exec::ExecutorOptions options = executor_options();
  options.topology = &topology();
  options.recorder = &recorder_;
  options.tracer = tracer_.get();
  options.departures = &membership_.departures();
  options.departure_grace = std::chrono::milliseconds(context_.config.liveness_ms);
  options.windows = fabric_.channels().has_windows();
  options.on_timed = [this](uint64_t sequence, Duration took, TimePoint end) {
    tuning_->on_timed(sequence, took, end);
  };
  if (on_device() && topology().clusters().size() == 1) {
    HETCCL_ASSIGN(options.settler, context_.runtime.settler());
  }
  HETCCL_ASSIGN(own_stream_, device_->create_stream());
  user_streams_ = std::make_unique<UserStreams>(context_.runtime, *device_);
  HETCCL_ASSIGN(auto executor, exec::Executor::create(std::move(options)));
  fabric_.exclusively([&] { executor_ = std::move(executor); });
  context_.engine().add(*executor_, on_exception());
  return {};
}

bool Dispatch::wait_until_idle() {
  return verdict_.drive_until([this] { return idle(); });
}

Status Dispatch::finish() {
  context_.engine().notify();
  Status status;
  do {
    wait_until_idle();
    status = failure();
  } while (!shut());
  if (tuning_ != nullptr) tuning_->finish();
  keep_learnt();
  return status;
}

// A call that another thread still makes must not start: nobody would arbitrate its failure. False
// when one was faster.
bool Dispatch::shut() {
  std::lock_guard launch_lock(launch_mutex_);
  if (!idle() && !verdict_.failed()) return false;
  context_.phase = Phase::Closed;
  return true;
}

void Dispatch::close(bool ended) {
  if (executor_ == nullptr) return;
  context_.engine().remove(*executor_);
  std::unique_ptr<exec::Executor> executor;
  fabric_.exclusively([&] { executor = std::move(executor_); });
  if (ended) return;
  context_.log.warn(
      "the device has not ended what was in flight %lld s after the communicator "
      "failed: its memory is kept until the process ends",
      static_cast<long long>(Verdict::kLastWait.count()));
  keep_until_exit(std::tuple(std::move(executor), std::move(own_stream_)));
}

Result<int> Dispatch::create_pre_mul_sum(DataType type, const void* scalar, bool on_device) {
  HETCCL_TRY(known());
  if (on_device && !on_host_memory()) {
    return error(Code::Unsupported,
                 "rank %d: the host cannot read a scalar in this device's memory: keep it in host "
                 "memory",
                 rank());
  }
  return red_ops_.create(type, scalar, on_device ? ScalarRead::AtCall : ScalarRead::Now);
}

Status Dispatch::recode(const device::Reduction& reduction, void* native_stream) {
  HETCCL_TRY(check_ready());
  if ((device_->capabilities() & device::kEncodes) == 0) {
    return error(Code::Unsupported,
                 "rank %d: its device, %s, has no kernels that encode: use host memory, with comm "
                 "NULL",
                 rank(), context_.options.device.c_str());
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
  if (!on_device()) context_.engine().notify();
  return {};
}

Statistics Dispatch::statistics() {
  std::lock_guard lock(launch_mutex_);
  Statistics statistics = statistics_;
  if (programs_ != nullptr) statistics.plans = programs_->made();
  statistics.cross_bytes_sent = executor_->bytes_sent();
  return statistics;
}

}  // namespace hetccl::comm
