// Takes a call to its executor: checks, plan, stream, resources, and errors half-way.
#include <algorithm>
#include <functional>
#include <set>

#include "comm/dispatch.h"
#include "exec/host_arithmetic.h"
#include "plan/call.h"

namespace hetccl::comm {

using std::chrono::milliseconds;

namespace {
// Larger calls take longer than skipping the engine saves.
constexpr uint64_t kAtOnceBytes = uint64_t{64} << 10U;
}  // namespace

std::string Dispatch::Work::text() const {
  if (collective != nullptr) return name_of(collective->signature);
  return messages.size() == 1 ? describe(messages.front())
                              : format("%zu messages", messages.size());
}

Status Dispatch::check(const Work& work) {
  HETCCL_TRY(check_ready());
  Status status;
  if (work.collective != nullptr) {
    status = comm::check(*work.collective, rank(), n_ranks());
    if (status.ok()) status = plan::check_support(work.collective->signature, topology());
  } else {
    status = comm::check(work.messages, rank(), n_ranks());
    // A GPU receive commits its memory to a sender before the message comes, so it must know the
    // sender.
    const auto is_any = [](const exec::Message& one) { return one.peer == exec::kAnyRank; };
    const auto& messages = work.messages;
    if (status.ok() && !on_host_memory() && std::any_of(messages.begin(), messages.end(), is_any)) {
      status = error(ErrorCode::Unsupported,
                     "a rank on a GPU cannot receive from any rank: name the rank that sends, or "
                     "receive in a communicator that this rank is in with its host memory");
    }
  }
  if (status.ok() && on_host_memory()) status = check_host_memory(work);
  return status.ok() ? status : status.with(format("rank %d: %s", rank(), work.text().c_str()));
}

// Refuses GPU memory on host ranks, because host threads would crash on it.
Status Dispatch::check_host_memory(const Work& work) const {
  HostPointers& pointers = context_.runtime.host_pointers();
  for (const exec::Message& message : work.messages) {
    if (message.count == 0) continue;
    HETCCL_TRY(pointers.check(message.data, message.send ? "sendbuff" : "recvbuff"));
  }
  if (work.collective == nullptr) return {};
  const CollectiveArguments& call = *work.collective;
  if (call.signature.count == 0 && !call.signature.uneven) return {};
  HETCCL_TRY(pointers.check(call.send, "sendbuff"));
  const bool off_root = is_rooted(call.signature.collective) && call.signature.root != rank();
  const bool takes = !off_root || (call.signature.collective != Collective::Reduce &&
                                   call.signature.collective != Collective::Gather);
  if (takes) HETCCL_TRY(pointers.check(call.recv, "recvbuff"));
  return pointers.check(call.residual, "residual");
}

Status Dispatch::complete(const Ticket& ticket) {
  // Bounded: the executor reports operations past their deadline, and the failure ends them.
  if (!ticket.done()) verdict_.drive_until([&] { return ticket.done(); });
  return failure();
}

Result<bool> Dispatch::await_all(TimePoint deadline) {
  HETCCL_TRY(known());
  if (!context_.engine().wait([this] { return idle(); }, deadline)) return false;
  fabric_.exclusively([] {});  // returns when running drivers have reported every end
  return true;
}

Result<bool> Dispatch::is_capturing(void* native_stream) {
  HETCCL_TRY(check_ready());
  return !is_no_stream(native_stream) && device_->is_capturing(native_stream);
}

// Refuses, before any rank counts it, a call that a graph cannot hold: the graph would run it
// later, or again, without the data that the progress engine moves.
Result<bool> Dispatch::is_captured(const Work& work, std::unique_lock<std::mutex>& lock) {
  if (is_no_stream(work.how.stream) || !device_->is_capturing(work.how.stream)) return false;
  Status status;
  if (work.collective == nullptr) {
    status = await_library(work, lock);
  } else if (!is_device_work_alone(work.collective->signature)) {
    status = error(ErrorCode::InvalidUsage, "not all ranks are in one cluster with such a library");
  }
  if (verdict_.failed()) return verdict_.await();
  if (status.ok()) return true;
  const std::string call = format("rank %d: %s: ", rank(), work.text().c_str());
  if (status.code() != ErrorCode::InvalidUsage) return status.with(call + "recording a graph");
  return status.with(call +
                     "its stream records a graph, which can only hold what the library of one "
                     "cluster does; call it outside the graph");
}

// Waits until the library is known to carry each of these messages. Other threads may call
// meanwhile.
Status Dispatch::await_library(const Work& work, std::unique_lock<std::mutex>& lock) {
  HETCCL_TRY(fabric_.meet(work.messages));
  std::set<std::pair<int, exec::Route*>> routes;  // each with its peer
  for (const exec::Message& message : work.messages) {
    if (message.peer == rank()) continue;
    routes.emplace(message.peer, &executor_->route(message.peer, message.send));
  }
  lock.unlock();
  Status status;
  for (const auto& [peer, route] : routes) {
    if (status.ok()) status = await_library(peer, *route, work.deadline);
  }
  lock.lock();
  return status.ok() ? check_ready() : status;
}

Status Dispatch::await_library(int peer, exec::Route& route, TimePoint deadline) {
  const exec::Departures& departures = membership_.departures();
  const auto give_up = [&] { return verdict_.failed() || departures.has_left(peer); };
  const auto by_library = route.wait_until_settled(deadline, give_up);
  if (by_library.ok() && by_library.value()) return {};
  if (by_library.ok()) {
    return error(ErrorCode::InvalidUsage,
                 "a channel carries messages with rank %d, not the library of a cluster that both "
                 "are in",
                 peer);
  }
  if (by_library.status().code() == ErrorCode::Timeout) {
    return error(
        ErrorCode::Timeout,
        "rank %d has not exchanged a message with this rank yet, and the library connects the "
        "two only then",
        peer);
  }
  return error(ErrorCode::RemoteError, "rank %d has left the communicator", peer);
}

bool Dispatch::is_device_work_alone(const Signature& signature) const {
  const topology::Cluster& cluster = topology().clusters().front();
  if (cluster.ranks.size() < static_cast<size_t>(n_ranks())) return false;
  if (plan::is_pairwise(signature.collective) && n_ranks() > 1 && !cluster.exchanges) return false;
  // A single rank's device, or the host, multiplies its data.
  return n_ranks() > 1 || signature.op != RedOp::PreMulSum ||
         exec::arithmetic_by_host(*device_, signature, 1) == 0;
}

Result<Dispatch::Ticket> Dispatch::launch(Work work) {
  HETCCL_TRY(check(work));
  auto& engine = context_.engine();
  const int64_t timeout_ms = work.how.timeout_ms > 0 ? work.how.timeout_ms : timeout_ms_.load();
  work.now = engine.clock().now();
  work.deadline = work.now + milliseconds(timeout_ms);
  std::unique_lock lock(launch_mutex_);
  HETCCL_TRY(wait_for_room(work, lock));
  HETCCL_TRY(check_ready());  // check again: `finish` may have come first
  work.how.waits = work.how.waits && is_no_stream(work.how.stream);
  HETCCL_ASSIGN(work.captured, is_captured(work, lock));
  Result<Ticket> ticket = Ticket();
  try {
    ticket = try_enqueue(work);
    lock.unlock();
    if (!ticket.ok()) return fail_launch(ticket.status(), work);
  } catch (...) {
    // A rank that counted a call without making it would be one ahead of the others. If there is no
    // memory even to tell them, the communicator takes no more calls here.
    verdict_.settle_without_memory();
    throw;
  }
  if (work.how.waits) return ticket;
  // A caller on a device's stream does not drive progress, so the engine must.
  executor_->urgent() ? engine.notify(on_device()) : engine.notify_later();
  return ticket;
}

// Fails the communicator: the other ranks may have made the call, and wait for this one.
Status Dispatch::fail_launch(const Status& why, const Work& work) {
  const Status status = why.with("launching " + work.text());
  if (!verdict_.failed()) report(rank(), status);
  Status cause = verdict_.await();
  // Work enqueued before the error may still use the caller's memory.
  stop(cause);
  wait_until_idle();
  return cause;
}

Result<Dispatch::Ticket> Dispatch::try_enqueue(const Work& work) {
  try {
    ++statistics_.operations;
    return work.collective != nullptr ? enqueue_collective(work) : enqueue_messages(work);
  } catch (...) {
    return caught();
  }
}

Result<Dispatch::Ticket> Dispatch::enqueue_collective(const Work& work) {
  const CollectiveArguments& arguments = *work.collective;
  Signature signature = arguments.signature;
  const uint64_t block = elements_of_a_block(arguments, n_ranks());
  if (!work.captured) signature.encoding = programs_->encoding_for(signature, block);
  const Tuning::Use use = find_setting(work, signature, block);
  HETCCL_ASSIGN(const Programs::Chosen chosen,
                programs_->choose(signature, block, use.setting, use.round));
  const auto [program, choice, resources] = chosen;
  if (!program->reached) fabric_.channels().reach(program->exec.peers());
  program->reached = true;
  HETCCL_ASSIGN(device::Stream * stream, stream_for(work.how.stream));

  const Encoding& wire = signature.encoding;
  statistics_.least_cross_bytes +=
      program->least_bytes * plan::bytes_of(block, signature.type, wire, !wire.is_none());
  exec::Call call{.send = arguments.send,
                  .recv = arguments.recv,
                  .signature = signature,
                  .factor = arguments.factor,
                  .residual = arguments.residual,
                  .sequence = sequence_++,
                  .deadline = work.deadline,
                  .launched = work.now,
                  .input = arguments.input,
                  .output = arguments.output,
                  .awaited = work.how.waits,
                  .timed = use.timed,
                  .round = use.round,
                  .resources = resources};
  call.salt = salt_of(static_cast<uint64_t>(context_.config.wire_seed), call.sequence, rank());
  if (work.captured) {
    HETCCL_TRY(executor_->capture(program->exec, call, *stream));
    return Ticket();
  }
  const bool at_once = work.how.waits && signature.collective == Collective::AllReduce &&
                       program->exec.is_one_library_call() && tracer_ == nullptr &&
                       signature.count * size_of(signature.type) <= kAtOnceBytes &&
                       !executor_->has_collectives();
  if (at_once) {
    HETCCL_ASSIGN(const bool done, executor_->all_reduce_at_once(program->exec, call, *stream));
    if (done) return Ticket();
    call.begun = true;
  }
  return executor_->launch(program->exec, choice, call, *stream);
}

Tuning::Use Dispatch::find_setting(const Work& work, const Signature& signature, uint64_t block) {
  if (tuning_ == nullptr || !tuning_->active()) return {};
  std::optional<tune::Key> key;
  if (!signature.uneven && signature.encoding.is_none())
    key = tune::key_of(signature, block, topology());
  const auto make_space = [&] { return programs_->space(signature, block, limits()); };
  const auto use = tuning_->use(key, block * size_of(signature.type), sequence_, work.captured,
                                work.now, std::ref(make_space));
  keep_learnt();
  return use;
}

Result<device::Stream*> Dispatch::stream_for(void* native) {
  if (is_no_stream(native)) return own_stream_.get();
  return user_streams_->find_or_wrap(native);
}

Result<Dispatch::Ticket> Dispatch::enqueue_messages(const Work& work) {
  HETCCL_TRY(fabric_.meet(work.messages));
  const auto messages = work.messages;
  device::Stream* stream = nullptr;
  if (!is_no_stream(work.how.stream)) {
    HETCCL_ASSIGN(stream, stream_for(work.how.stream));
  }
  if (work.captured) {
    HETCCL_TRY(executor_->capture(messages, *stream));
    return Ticket();
  }
  for (const exec::Message& message : messages) {
    if (message.send && fabric_.channels().crosses(message.peer)) {
      statistics_.least_cross_bytes += message.count * size_of(message.type);
    }
  }
  return executor_->launch(messages, work.now, work.deadline, stream);
}

Status Dispatch::wait_for_room(const Work& work, std::unique_lock<std::mutex>& lock) {
  const auto full = [&] {
    return work.collective != nullptr ? executor_->full() : executor_->full_of_messages();
  };
  while (full()) {
    lock.unlock();
    auto& engine = context_.engine();
    engine.notify();
    const bool room = engine.wait([&] { return !full(); }, work.deadline);
    lock.lock();
    if (!room) {
      return error(ErrorCode::Timeout, "rank %d: %zu operations are in flight and none completed",
                   rank(), exec::Executor::kMaxInFlight);
    }
  }
  return {};
}

}  // namespace hetccl::comm
