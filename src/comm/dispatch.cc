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
  HETCCL_TRY(measure());  // no rank returns, and makes calls, before all have measured
  fabric_.exclusively([&] { fabric_.channels().attach(*executor_); });
  return {};
}

// Returns the options that all executors of this communicator share.
exec::ExecutorOptions Dispatch::executor_options() {
  exec::ExecutorOptions options;
  options.clock = &context_.engine().clock();
  options.device = device_;
  options.memory = context_.runtime.memory_of(*device_);
  options.ccl = &fabric_.ccl();
  options.library = membership_.info(rank()).library;
  options.collectives = membership_.session().communicator();
  options.messages = Channels::messages_number(membership_.session());
  options.rank = rank();
  options.n_ranks = n_ranks();
  options.local_rank = topology().local_rank(rank());
  // A launch on a GPU may block until messages have moved, so the engine must notice them by
  // itself.
  if (on_device()) options.on_published = [this] { context_.engine().notify(true); };
  options.on_fault = [this](const exec::Fault& fault) {
    if (fault.stall) return verdict_.ask_why(fault.status.code(), fault.rank, *fault.stall);
    report(fault.rank, fault.status);
  };
  return options;
}

Status Dispatch::open_executor() {
  // Pools let most launches avoid the driver, which may wait for the device, and so for ranks that
  // wait for this one.
  if (topology().clusters().size() > 1) {
    HETCCL_TRY(device_->reserve(size_t{64} << 20U, size_t{32} << 20U));
  }
  exec::ExecutorOptions options = executor_options();
  options.topology = &topology();
  options.launches_wait = context_.runtime.config().launches_wait;
  options.recorder = &recorder_;
  options.message_recorder = &message_recorder_;
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

Status Dispatch::finish() {
  context_.engine().notify();
  Status status;
  for (bool closed = false; !closed;) {
    wait_until_idle();
    status = failure();
    // A call that another thread is making must not start afterwards: nobody would arbitrate its
    // failure.
    std::lock_guard lock(launch_mutex_);
    closed = idle() || verdict_.failed();  // false: another call came first
    if (closed) context_.phase = Phase::Closed;
  }
  if (tuning_ != nullptr) tuning_->finish();
  keep_learnt();
  const auto progress = tuning_ != nullptr ? tuning_->progress() : std::nullopt;
  if (progress && tuning_file_ != nullptr) {
    context_.log.info(
        "tuning: %zu kinds of calls are settled, in %s; %zu are not, and the next job begins their "
        "search anew",
        progress->settled, tuning_file_->path().c_str(), progress->unsettled);
  }
  return status;
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

// Different collectives on ranks of this cluster would be the cause. The library only knows its own
// calls and the cluster's ranks, so all ranks are asked for the user's calls.
void Dispatch::report(int culprit, const Status& status) {
  if (executor_ == nullptr) return verdict_.report(status.code(), culprit, status.message());
  const auto between = fabric_.ccl().disagreement();
  if (!between) return verdict_.report_own(culprit, status);
  const std::string call = position(between->number).call;
  const auto& members = membership_.cluster().ranks;
  const auto global = [&](int local) { return members[static_cast<size_t>(local)]; };
  verdict_.ask_why(ErrorCode::InvalidUsage, -1,
                   {between->number, call, "the ranks disagree on " + call,
                    format("ranks %d and %d passed different counts or roots",
                           global(between->rank), global(between->other))});
}

OnException Dispatch::on_exception() {
  return [this](const Status& why) { report(rank(), why); };
}

bootstrap::Position Dispatch::position(uint64_t sequence) const {
  const auto record = recorder_.find(sequence);
  return {recorder_.called(), recorder_.ended(),
          record ? describe(record->signature, sequence) : ""};
}

void Dispatch::stop(Status status) {
  const ErrorCode code = status.code();
  const std::string cause = status.message();
  if (!verdict_.settle(std::move(status))) return;
  context_.cancel->set(Status(code, cause));
  dump_failure();
  // Do not take `launch_mutex_`: a launching thread may block until this ends its operation.
  fabric_.exclusively([&] {
    // Read before anything ends. A rank with work in flight may only wait for a stream, and would
    // learn of the failure nowhere else.
    const std::string oldest = executor_ != nullptr ? executor_->describe_oldest() : "";
    if (code == ErrorCode::Aborted || oldest.empty()) {
      context_.log.info("communicator failed: %s", cause.c_str());
    } else {
      context_.log.warn("communicator failed: %s; this rank: %s", cause.c_str(), oldest.c_str());
    }
    if (Pairs* pairs = fabric_.pairs()) pairs->give_up(Status(code, cause));
    if (measuring_ != nullptr) measuring_->abort();
    if (executor_ != nullptr) executor_->abort();
  });
  context_.engine().notify();
}

Status Dispatch::known() {
  if (context_.phase == Phase::Opening) {
    return error(ErrorCode::InvalidUsage,
                 "the communicator is still being set up: end the group that makes it, or ask "
                 "hetcclCommGetAsyncError until it is no longer hetcclInProgress");
  }
  return executor_ != nullptr ? Status() : failure();
}

Status Dispatch::check_ready() {
  if (context_.phase == Phase::Opening) return known();
  if (verdict_.failed()) return verdict_.await();
  if (context_.phase == Phase::Ready) return {};
  return error(ErrorCode::InvalidUsage, "rank %d: the communicator was finalized or destroyed",
               rank());
}

Status Dispatch::failure() {
  if (!verdict_.failed()) {
    const Phase phase = context_.phase;
    if (phase == Phase::Opening || phase == Phase::Closed) return {};
    const Status local = fabric_.async_error();
    if (local.ok()) return {};
    // This rank sees the failure first: results are worthless, though ranks have not agreed on the
    // cause.
    report(-1, local);
  }
  return verdict_.await();
}

Result<int> Dispatch::create_pre_mul_sum(DataType type, const void* scalar, bool on_device) {
  HETCCL_TRY(known());
  if (on_host_memory()) HETCCL_TRY(context_.runtime.host_pointers().check(scalar, "scalar"));
  if (on_device && !on_host_memory()) {
    return error(ErrorCode::Unsupported,
                 "rank %d: the host cannot read a scalar in this device's memory: keep it in host "
                 "memory",
                 rank());
  }
  return red_ops_.create(type, scalar, on_device ? ScalarRead::AtCall : ScalarRead::Now);
}

Status Dispatch::recode(const device::Reduction& reduction, void* native_stream) {
  HETCCL_TRY(check_ready());
  if ((device_->capabilities() & device::kEncodes) == 0) {
    return error(ErrorCode::Unsupported,
                 "rank %d: its device, %s, has no kernels that encode: use host memory, with comm "
                 "NULL",
                 rank(), context_.options.device.c_str());
  }
  if (on_host_memory()) {
    HostPointers& pointers = context_.runtime.host_pointers();
    HETCCL_TRY(pointers.check(reduction.srcs[0], "what is read"));
    HETCCL_TRY(pointers.check(reduction.dst, "what is written"));
  }
  // Only the host has no default stream, and its memory belongs to the caller.
  if (is_no_stream(native_stream)) {
    reduce_encoded(reduction, 0, reduction.count);
    return {};
  }
  // The caller's stream waits for it, so it may use the whole GPU, not only HETCCL_GPU_BLOCKS of
  // it.
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
