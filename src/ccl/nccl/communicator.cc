#include "ccl/nccl/communicator.h"

#include <algorithm>
#include <thread>

#include "base/heap.h"
#include "base/keep.h"
#include "base/thread.h"

namespace hetccl::ccl::nccl {
namespace {

// The longest time that destroying a communicator may block its owner.
constexpr auto kPatience = std::chrono::seconds(10);
// The time that an abort gives a call inside NCCL to return.
constexpr auto kCallPatience = std::chrono::seconds(2);
// ncclCommAbort first tells NCCL's kernels, then waits for them. This long after its start, it has
// told them.
constexpr auto kTelling = std::chrono::milliseconds(10);
// The interval between attempts to start a thread.
constexpr auto kRetry = std::chrono::milliseconds(1);

int number_of(DataType type) {
  return static_cast<int>(type);
}

Status aborted() {
  return error(ErrorCode::Aborted, "the cluster's communicator was aborted");
}

// Moves data as bytes of another type: NCCL 2.27 refuses even to move fp8 on GPUs before Hopper.
struct Moved {
  int type;
  size_t per_element;
};

Moved moved_as(DataType type) {
  if (type < DataType::Float8E4m3) return {number_of(type), 1};
  return {number_of(DataType::Uint8), size_of(type)};
}

}  // namespace

Status explain(const Api& api, int outcome, const char* call, void* comm) {
  if (outcome == kSuccess) [[likely]]
    return {};
  const ErrorCode code = outcome == kRemoteError    ? hetccl::ErrorCode::RemoteError
                         : outcome == kInvalidUsage ? ErrorCode::InvalidUsage
                                                    : ErrorCode::SystemError;
  const char* words = api.last_error ? api.last_error(comm) : nullptr;
  return error(code, "%s %s: %s: %s%s%s", api.name.c_str(), api.version.c_str(), call,
               api.error_text(outcome), words != nullptr && *words != '\0' ? ": " : "",
               words != nullptr ? words : "");
}

Handle::~Handle() {
  end(true);
}

// Allocate the word first: allocating may wait for a device on which other ranks' calls wait for
// this one.
Status Handle::open(const UniqueId& id, int n_ranks, int rank, const CommConfig* config) {
  HETCCL_ASSIGN(word_, workspace_->allocate(1));
  void* comm = nullptr;
  const char* const call = config == nullptr ? "ncclCommInitRank" : "ncclCommInitRankConfig";
  const int outcome = config == nullptr ? api_->init(&comm, n_ranks, id, rank)
                                        : api_->init_with(&comm, n_ranks, id, rank, config);
  comm_.store(comm, std::memory_order_release);
  if (comm != nullptr) return check(outcome, call);
  HETCCL_TRY(explain(*api_, outcome, call, nullptr));
  return error(ErrorCode::InternalError, "%s made nothing", call);
}

// A call may wait inside NCCL for its kernel (CUDA_LAUNCH_BLOCKING=1, or a full queue), and the
// kernel for ranks that are gone, until NCCL is aborted. So an abort gives that call some time to
// return, then aborts anyway.
void Handle::end(bool by_force) {
  announce_end();
  const std::lock_guard ends(ends_);
  std::unique_lock lock(mutex_, std::defer_lock);
  const TimePoint limit = steady_clock().now() + kCallPatience;
  if (!by_force) lock.lock();
  while (!lock.owns_lock() && !lock.try_lock() && steady_clock().now() < limit)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  if (void* comm = comm_.exchange(nullptr, std::memory_order_acq_rel); comm != nullptr) {
    workspace_->make_current();
    known_at_.store(steady_clock().now() + kTelling, std::memory_order_release);
    by_force ? api_->abort(comm) : api_->destroy(comm);
    known_at_.store(TimePoint::min(), std::memory_order_release);
  }
  if (!lock.owns_lock()) lock.lock();
  if (word_ == nullptr) return;
  workspace_->make_current();
  for (void* memory : {word_, adopted_}) {
    if (memory != nullptr) workspace_->free(memory);
  }
  word_ = adopted_ = nullptr;
}

// Check before locking, too: `end` may hold the mutex for long.
Result<std::shared_lock<std::shared_mutex>> Handle::enter() {
  if (ending()) return aborted();
  std::shared_lock lock(mutex_);
  if (comm() == nullptr || ending()) return aborted();
  return lock;
}

void Handle::adopt(void* memory) {
  const std::lock_guard ends(ends_);
  if (comm() != nullptr) {
    adopted_ = memory;
  } else if (memory != nullptr) {
    workspace_->free(memory);
  }
}

// Waits if the call continues in the background, as with NCCL_COMM_BLOCKING=0 only.
Status Handle::check(int outcome, const char* call) {
  while (outcome == kInProgress && !ending()) {
    std::this_thread::yield();
    const int asked = api_->async_error(comm_, &outcome);
    if (asked != kSuccess) outcome = asked;
  }
  if (outcome == kSuccess) [[likely]]
    return {};
  if (ending()) return aborted().with(call);
  return explain(*api_, outcome, call, comm_);
}

bool Handle::end_has_begun() const {
  return steady_clock().now() >= known_at_.load(std::memory_order_acquire);
}

bool start_ending(const std::shared_ptr<Handle>& handle, bool by_force,
                  const std::shared_ptr<std::atomic<bool>>& ended) {
  auto thread = start_thread("nccl", [handle, by_force, ended] {
    try {
      handle->end(by_force);
    } catch (...) {
      return;  // out of memory: NCCL's communicator stays until the process ends
    }
    if (ended != nullptr) ended->store(true, std::memory_order_release);
    return_freed_memory();
  });
  if (!thread.ok()) return false;
  thread->detach();
  return true;
}

// Ends in order if nothing has failed: all ranks have left, and streams are empty. If no thread can
// be started for that long, NCCL's communicator stays until the process ends.
NcclCommunicator::~NcclCommunicator() {
  const bool by_force = handle_->ending() || !async_error().ok();
  const auto ended = std::make_shared<std::atomic<bool>>(false);
  const TimePoint deadline = steady_clock().now() + kPatience;
  bool started = start_ending(handle_, by_force, ended);
  while (!ended->load(std::memory_order_acquire) && steady_clock().now() < deadline) {
    std::this_thread::sleep_for(kRetry);
    if (!started) started = start_ending(handle_, by_force, ended);
  }
  if (!started) keep_until_exit(handle_);
}

void NcclCommunicator::abort() {
  if (handle_->ending()) return;
  handle_->announce_end();
  if (!start_ending(handle_, true)) to_abort_.store(true);
}

bool NcclCommunicator::abort_has_begun() {
  if (to_abort_.exchange(false) && !start_ending(handle_, true)) to_abort_.store(true);
  return handle_->end_has_begun();
}

Status NcclCommunicator::async_error() const {
  if (handle_->ending()) return aborted();
  std::shared_lock lock(handle_->mutex(), std::try_to_lock);
  if (!lock.owns_lock() || comm() == nullptr) return aborted();
  int outcome = kSuccess;
  const int asked = api().async_error(comm(), &outcome);
  if (asked != kSuccess) outcome = asked;
  if (outcome == kSuccess || outcome == kInProgress) [[likely]]
    return {};
  return handle_->check(outcome, "a collective");
}

// Returns whether there is one shard per rank, equal and contiguous. All ranks get the same result.
bool NcclCommunicator::one_each(std::span<const Shard> shards) const {
  if (n_ranks_ < 2 || shards.size() != static_cast<size_t>(n_ranks_)) return false;
  for (size_t i = 0; i < shards.size(); ++i) {
    const Shard& shard = shards[i];
    if (shard.root != static_cast<int>(i) || shard.count != shards[0].count ||
        shard.receiver >= 0 || (i > 0 && !shard.follows))
      return false;
  }
  return true;
}

// Calls `body(op)` with NCCL's number of the operator. A pre-multiplied sum is created for the
// call.
template <typename Body>
Status NcclCommunicator::with_operator(const Reducer& how, DataType type, Body&& body) {
  HETCCL_ASSIGN(const auto call, handle_->enter());
  if (!has_type(api().version_code, type)) {
    return error(ErrorCode::Unsupported, "NCCL %s cannot reduce %s", api().version.c_str(),
                 std::string(name_of(type)).c_str());
  }
  if (is_bitwise(how.op)) {
    return error(ErrorCode::Unsupported, "%s has no bitwise operators", api().path.c_str());
  }
  if (!has(how.op)) {
    return error(ErrorCode::Unsupported,
                 "%s has no pre-multiplied sums: it lacks ncclRedOpCreatePreMulSum or "
                 "ncclRedOpDestroy",
                 api().path.c_str());
  }
  if (how.op != RedOp::PreMulSum) return body(static_cast<int>(how.op));
  int op = 0;
  Factor factor = how.factor;
  HETCCL_TRY(handle_->check(
      api().create_premul_sum(&op, factor.element, number_of(type), kHostImmediate, comm()),
      "ncclRedOpCreatePreMulSum"));
  Status status = body(op);
  const Status destroyed = handle_->check(api().destroy_op(op, comm()), "ncclRedOpDestroy");
  return status.ok() ? destroyed : status;
}

// End the group even after a failed call, because it belongs to the thread.
template <typename Body>
Status NcclCommunicator::in_group(Body&& body) {
  HETCCL_TRY(handle_->check(api().group_start(), "ncclGroupStart"));
  Status status = body();
  const Status ended = handle_->check(api().group_end(), "ncclGroupEnd");
  return status.ok() ? ended : status;
}

Status NcclCommunicator::all_reduce(const void* send, void* recv, size_t count, DataType type,
                                    const Reducer& how, void* stream) {
  if (count == 0) return {};
  const ScopedTactic scope(tactic_, possible_);
  return with_operator(how, type, [&](int op) {
    return handle_->check(api().all_reduce(send, recv, count, number_of(type), op, comm(), stream),
                          "ncclAllReduce");
  });
}

Status NcclCommunicator::reduce(std::span<const Shard> shards, DataType type, const Reducer& how,
                                void* stream) {
  HETCCL_TRY(check_ranks(shards, n_ranks_));
  const auto empty = [](const Shard& shard) { return shard.count == 0; };
  if (std::all_of(shards.begin(), shards.end(), empty)) return {};
  const ScopedTactic scope(tactic_, possible_);
  return with_operator(how, type, [&](int op) {
    const Target target{number_of(type), stream};
    if (!one_each(shards)) return reduce_each(shards, op, target);
    return handle_->check(
        api().reduce_scatter(shards[0].send, shards[static_cast<size_t>(rank_)].recv,
                             shards[0].count, target.type, op, comm(), stream),
        "ncclReduceScatter");
  });
}

Status NcclCommunicator::reduce_each(std::span<const Shard> shards, int op, const Target& target) {
  return in_group([&]() -> Status {
    for (const Shard& shard : shards) {
      if (shard.count == 0) continue;
      HETCCL_TRY(handle_->check(api().reduce(shard.send, shard.recv, shard.count, target.type, op,
                                             shard.root, comm(), target.stream),
                                "ncclReduce"));
    }
    return {};
  });
}

Status NcclCommunicator::broadcast(std::span<const Shard> shards, DataType type, void* stream) {
  HETCCL_TRY(check_ranks(shards, n_ranks_));
  HETCCL_ASSIGN(const auto call, handle_->enter());
  const ScopedTactic scope(tactic_, possible_);
  const auto [number, per_element] = moved_as(type);
  const Target target{number, stream};
  if (one_each(shards)) {
    if (shards[0].count == 0) return {};
    return handle_->check(api().all_gather(shards[static_cast<size_t>(rank_)].send, shards[0].recv,
                                           shards[0].count * per_element, number, comm(), stream),
                          "ncclAllGather");
  }
  HETCCL_TRY(broadcast_each(shards, per_element, target));
  return deliver(shards, per_element, target);
}

Status NcclCommunicator::broadcast_each(std::span<const Shard> shards, size_t per_element,
                                        const Target& target) {
  const auto passes = [](const Shard& shard) { return shard.count > 0 && shard.receiver < 0; };
  if (std::none_of(shards.begin(), shards.end(), passes)) return {};
  return in_group([&]() -> Status {
    for (const Shard& shard : shards) {
      if (!passes(shard)) continue;
      HETCCL_TRY(handle_->check(api().broadcast(shard.send, shard.recv, shard.count * per_element,
                                                target.type, shard.root, comm(), target.stream),
                                "ncclBroadcast"));
    }
    return {};
  });
}

// Sends shards that have one receiver. Ranks at neither end make no call.
Status NcclCommunicator::deliver(std::span<const Shard> shards, size_t per_element,
                                 const Target& target) {
  const auto mine = [this](const Shard& shard) {
    const bool stays = shard.root == shard.receiver && shard.send == shard.recv;
    return shard.count > 0 && shard.receiver >= 0 && !stays &&
           (shard.root == rank_ || shard.receiver == rank_);
  };
  if (std::none_of(shards.begin(), shards.end(), mine)) return {};
  return in_group([&]() -> Status {
    for (const Shard& shard : shards) {
      if (!mine(shard)) continue;
      const size_t count = shard.count * per_element;
      if (shard.root == rank_) HETCCL_TRY(send(shard.send, count, shard.receiver, target));
      if (shard.receiver == rank_) HETCCL_TRY(receive(shard.recv, count, shard.root, target));
    }
    return {};
  });
}

Status NcclCommunicator::send(const void* data, size_t count, int peer, const Target& target) {
  return handle_->check(api().send(data, count, target.type, peer, comm(), target.stream),
                        "ncclSend");
}

Status NcclCommunicator::receive(void* data, size_t count, int peer, const Target& target) {
  return handle_->check(api().recv(data, count, target.type, peer, comm(), target.stream),
                        "ncclRecv");
}

// Uses a group, whose messages move together. NCCL matches messages between two ranks in the order
// of the calls. It copies a rank's message to itself, or leaves it if both ends name the same
// memory.
Status NcclCommunicator::exchange(std::span<const Transfer> transfers, DataType type,
                                  void* stream) {
  HETCCL_TRY(check_transfers(transfers, n_ranks_, rank_));
  HETCCL_ASSIGN(const auto call, handle_->enter());
  const auto empty = [](const Transfer& transfer) { return transfer.count == 0; };
  if (std::all_of(transfers.begin(), transfers.end(), empty)) return {};
  const auto [number, per_element] = moved_as(type);
  const Target target{number, stream};
  return in_group([&, per_element = per_element]() -> Status {
    for (const Transfer& transfer : transfers) {
      if (transfer.count == 0) continue;
      const size_t count = transfer.count * per_element;
      HETCCL_TRY(transfer.send ? send(transfer.data, count, transfer.peer, target)
                               : receive(transfer.data, count, transfer.peer, target));
    }
    return {};
  });
}

// NCCL returns success and a null handle if it does not register such memory.
Result<void*> NcclCommunicator::register_memory(void* memory, size_t bytes) {
  HETCCL_ASSIGN(const auto call, handle_->enter());
  if (!api().register_memory) return nullptr;
  void* handle = nullptr;
  HETCCL_TRY(
      handle_->check(api().register_memory(comm(), memory, bytes, &handle), "ncclCommRegister"));
  return handle;
}

Status NcclCommunicator::deregister_memory(void* registration) {
  HETCCL_ASSIGN(const auto call, handle_->enter());
  return handle_->check(api().deregister_memory(comm(), registration), "ncclCommDeregister");
}

Status NcclCommunicator::barrier(void* stream) {
  return with_operator({RedOp::Max}, DataType::Int8, [&](int op) {
    void* word = handle_->word();  // an abort frees it
    return handle_->check(
        api().all_reduce(word, word, 1, number_of(DataType::Int8), op, comm(), stream),
        "ncclAllReduce");
  });
}

}  // namespace hetccl::ccl::nccl
