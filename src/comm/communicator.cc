#include "comm/communicator.h"

#include "comm/arguments.h"
#include "plan/call.h"

namespace hetccl::comm {

using std::chrono::milliseconds;

namespace {
constexpr size_t kMaxUserStreams = 64;
}  // namespace

Communicator::~Communicator() {
  cancel_->set(error(Code::Aborted, "the communicator was destroyed"));
  chores_.wait();
  if (executor_ != nullptr) {
    if (!executor_->idle()) stop(error(Code::Aborted, "the communicator was destroyed"));
    runtime_.engine().wait([&] { return executor_->idle(); }, TimePoint::max());
  }
  if (session_ != nullptr) session_->leave(recorder_.called());
  write_trace();
  if (executor_ != nullptr) runtime_.engine().remove(*executor_);
  runtime_.engine().exclusively([&] {
    channels_.clear();
    ccl_.reset();
    executor_.reset();
  });
}

Status Communicator::call(const CollectiveArguments& arguments, void* native_stream) {
  HETCCL_TRY(check_ready());
  HETCCL_TRY(check(arguments, rank(), n_ranks())
                 .with(format("rank %d: %s", rank(), name_of(arguments.signature).c_str())));
  HETCCL_ASSIGN(const uint64_t number, launch(arguments, native_stream));
  auto& engine = runtime_.engine();
  if (native_stream != nullptr) {
    engine.notify();
    return {};
  }
  // Bounded: the executor reports what passes its deadline, and the failure ends the operation.
  engine.wait([&] { return executor_->done(number); }, TimePoint::max());
  return failure();
}

Result<uint64_t> Communicator::launch(const CollectiveArguments& arguments, void* native_stream) {
  const TimePoint now = runtime_.engine().clock().now();
  const TimePoint deadline = now + milliseconds(timeout_ms_.load());
  std::unique_lock lock(launch_mutex_);
  HETCCL_TRY(wait_for_room(lock, deadline));
  HETCCL_TRY(check_ready());  // again: a finish may have been faster
  auto number = enqueue(arguments, native_stream, now, deadline);
  if (number.ok()) return number;
  // The others may have called it, and wait for this rank.
  const std::string call = name_of(arguments.signature);
  const Status status = number.status().with("launching " + call);
  lock.unlock();
  if (!failed_.load()) {
    report(status.code(), rank(), format("rank %d: %s", rank(), status.message().c_str()));
  }
  Status verdict = await_verdict();
  // What was enqueued before it failed may still use the caller's memory.
  stop(verdict);
  runtime_.engine().wait([&] { return executor_->idle(); }, TimePoint::max());
  return verdict;
}

Result<uint64_t> Communicator::enqueue(const CollectiveArguments& arguments, void* native_stream,
                                       TimePoint now, TimePoint deadline) {
  const Signature& signature = arguments.signature;
  const plan::Spec spec = plan::spec_of(signature);
  HETCCL_ASSIGN(const Program* program, program_for(spec));
  HETCCL_ASSIGN(device::Stream * stream, stream_for(native_stream));
  HETCCL_TRY(reach(program->exec, signature, now, deadline));

  const uint64_t block = elements_of_a_block(arguments, n_ranks());
  plan::Choice choice = plan::choose(spec, topology(), block, signature.type);
  const Config& config = runtime_.config();
  if (config.slice_bytes > 0) choice.slice_bytes = static_cast<uint64_t>(config.slice_bytes);
  if (config.depth > 0) choice.depth = static_cast<uint32_t>(config.depth);

  ++statistics_.operations;
  statistics_.least_cross_bytes += program->least_bytes * block * size_of(signature.type);
  const exec::Call call{.send = arguments.send,
                        .recv = arguments.recv,
                        .signature = signature,
                        .factor = arguments.factor,
                        .sequence = sequence_++,
                        .deadline = deadline,
                        .launched = now,
                        .input = arguments.input,
                        .output = arguments.output};
  return executor_->launch(program->exec, choice, call, *stream);
}

// Channels that no collective needed so far. All ranks make theirs in ascending order: of all that
// wait, the two of the lowest pair wait for each other.
Status Communicator::reach(const exec::Program& program, const Signature& call, TimePoint now,
                           TimePoint deadline) {
  for (const int peer : program.peers) {
    if (channels_.count(peer) != 0) continue;
    if (recorder_.called() == sequence_) {  // for others that ask where this rank is
      exec::Record record;
      record.sequence = sequence_;
      record.signature = call;
      record.launched = now;
      recorder_.launch(record);
    }
    auto& engine = runtime_.engine();
    engine.notify();  // what is in flight goes on
    awaits_.store(static_cast<int64_t>(sequence_));
    Status status;
    if (departures_.first_incomplete() <= sequence_) {
      status = error(Code::RemoteError, "rank %d has left the communicator", departures_.rank());
    } else {
      const auto left = std::chrono::duration_cast<milliseconds>(deadline - engine.clock().now());
      status = open_channel(peer, {std::max<int64_t>(left.count(), 1), cancel_.get()});
    }
    awaits_.store(-1);
    if (status.code() == Code::Timeout) {
      const auto given = std::chrono::round<milliseconds>(deadline - now);
      const std::string text = describe(call, sequence_);
      ask_why(Code::Timeout, -1,
              {sequence_, text,
               format("%s timed out after %lld ms", text.c_str(),
                      static_cast<long long>(given.count())),
               format("it connects to rank %d", peer)});
      return await_verdict();
    }
    HETCCL_TRY(status.with(format("connecting to rank %d", peer)));
    engine.exclusively([&] { use_channel(peer); });
  }
  return {};
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

Status Communicator::wait_for_room(std::unique_lock<std::mutex>& lock, TimePoint deadline) {
  while (executor_->full()) {
    lock.unlock();
    auto& engine = runtime_.engine();
    engine.notify();
    const bool room = engine.wait([&] { return !executor_->full(); }, deadline);
    lock.lock();
    if (!room) {
      return error(Code::Timeout, "rank %d: %zu collectives are in flight and none completed",
                   rank(), exec::Executor::kMaxInFlight);
    }
  }
  return {};
}

Result<const Communicator::Program*> Communicator::program_for(const plan::Spec& spec) {
  auto& program = programs_[spec];
  if (program == nullptr) {
    HETCCL_ASSIGN(auto plan, plan::plan(rank(), spec, topology()));
    HETCCL_ASSIGN(auto compiled, exec::Program::compile(std::move(plan)));
    const uint64_t least = plan::least_bytes(spec, topology(), 1, DataType::Int8);
    program = std::make_unique<Program>(Program{std::move(compiled), least});
    ++statistics_.plans;
  }
  return program.get();
}

Result<device::Stream*> Communicator::stream_for(void* native) {
  if (native == nullptr) return own_stream_.get();
  // Streams come and go, and so does what is kept of them.
  const uint64_t destroyed = runtime_.destroyed_host_streams();
  if (destroyed != destroyed_streams_ || user_streams_.size() >= kMaxUserStreams) {
    user_streams_.clear();
    destroyed_streams_ = destroyed;
  }
  const auto known = user_streams_.find(native);
  if (known != user_streams_.end()) return known->second.get();
  HETCCL_ASSIGN(auto stream, device_->wrap_stream(native));
  return user_streams_.emplace(native, std::move(stream)).first->second.get();
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
    runtime_.engine().wait([&] { return executor_->idle(); }, TimePoint::max());
    status = failure();
  } while (!close());
  session_->leave(recorder_.called());
  return status;
}

Status Communicator::finalize() {
  HETCCL_TRY(check_ready());
  if (options_.blocking) return finish();
  phase_.store(Phase::Finalizing, std::memory_order_release);
  chores_.post([this] { static_cast<void>(drain()); });
  return {};
}

// A call that another thread still makes must not start: nobody would arbitrate its failure. False
// when one was faster.
bool Communicator::close() {
  std::lock_guard launch_lock(launch_mutex_);
  if (!executor_->idle()) return false;
  phase_.store(Phase::Closed, std::memory_order_release);
  return true;
}

bool Communicator::settle(Status cause) {
  std::lock_guard lock(failure_mutex_);
  if (!failure_.ok()) return false;
  failure_ = std::move(cause);
  failed_.store(true, std::memory_order_release);
  verdict_.notify_all();
  return true;
}

void Communicator::shut_down(TimePoint deadline) {
  auto& engine = runtime_.engine();
  const auto busy = [&] {
    const Phase phase = phase_.load(std::memory_order_acquire);
    return phase == Phase::Opening || (phase != Phase::Closed && !executor_->idle());
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
  runtime_.engine().wait([&] { return executor_->idle(); }, TimePoint::max());
}

void Communicator::report(Code code, int culprit, const std::string& reason) {
  log_.debug("reporting: %s", reason.c_str());
  session_->report({code, culprit, reason});
}

void Communicator::on_fault(const exec::Fault& fault) {
  if (!fault.stall) {
    return report(fault.status.code(), fault.rank,
                  format("rank %d: %s", rank(), fault.status.message().c_str()));
  }
  ask_why(fault.status.code(), fault.rank, *fault.stall);
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
  // Who is still setting up, or connects to it, waits for the other in vain.
  if (static_cast<int64_t>(called) <= awaits_.load())
    cancel_->set(error(Code::RemoteError, "rank %d has left the communicator", who));
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
  log_.info("communicator failed: %s", cause.c_str());
  cancel_->set(Status(code, cause));
  dump_failure();
  // Whoever launches has either seen the failure or has finished launching: abort ends what it
  // launched.
  std::lock_guard lock(launch_mutex_);
  if (executor_ == nullptr) return;
  runtime_.engine().exclusively([&] { executor_->abort(); });
  runtime_.engine().notify();
}

Status Communicator::failure() {
  if (!failed_.load(std::memory_order_acquire)) {
    const Phase phase = phase_.load(std::memory_order_acquire);
    if (phase == Phase::Opening || phase == Phase::Closed) return {};
    const Status local = ccl_->async_error();
    if (local.ok()) return {};
    // Seen here first: results are worthless already, though the cause is not agreed yet.
    report(local.code(), -1, format("rank %d: %s", rank(), local.message().c_str()));
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
  statistics.cross_bytes_sent = executor_->bytes_sent();
  return statistics;
}

}  // namespace hetccl::comm
