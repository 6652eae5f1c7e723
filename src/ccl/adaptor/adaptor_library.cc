#include "ccl/adaptor/adaptor_library.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "adaptor/calls.h"
#include "ccl/adaptor/found_library.h"
#include "ccl/adaptor/work.h"
#include "host/task_queue.h"

namespace hetccl::ccl {
namespace {

using adaptor::ask;
using Part = FoundLibrary::Part;
using adaptor::run_within;

constexpr std::chrono::milliseconds kGrace{100};

// The state of a call until it is complete.
struct PendingCall {
  hetcclLibraryCall kind{};
  DataType type{};
  RedOp op{};
  Lists lists{};
  uint64_t number = 0;  // in the order of the calls
  bool started = false;
  void* request = nullptr;
};

// The adaptor's own communicator, also kept by calls under way. Calls start in their order,
// whatever order their streams run in.
class LibraryCommunicator {
 public:
  LibraryCommunicator(std::shared_ptr<const Part> adaptor, void* handle, int n_ranks, int rank)
      : adaptor_(std::move(adaptor)), handle_(handle), n_ranks_(n_ranks), rank_(rank) {}
  ~LibraryCommunicator() { end(); }
  LibraryCommunicator(const LibraryCommunicator&) = delete;
  LibraryCommunicator& operator=(const LibraryCommunicator&) = delete;

  [[nodiscard]] const std::string& name() const { return adaptor_->name; }
  [[nodiscard]] int n_ranks() const { return n_ranks_; }
  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] bool reduces(DataType type, RedOp op) const;
  // Returns a call for `enqueue`, reusing the memory of a completed one.
  std::unique_ptr<PendingCall> issue();
  void give_back(std::unique_ptr<PendingCall> call) {
    const std::lock_guard lock(mutex_);
    spare_.push_back(std::move(call));
  }
  [[nodiscard]] Status error() const {
    const std::lock_guard lock(mutex_);
    return error_;
  }
  void fail(const Status& reason) {
    {
      const std::lock_guard lock(mutex_);
      if (error_.ok()) error_ = reason;
    }
    failed_.store(true, std::memory_order_release);
  }
  void abort() {
    fail(hetccl::error(ErrorCode::RemoteError, "aborted"));
    aborted_.store(true, std::memory_order_release);
  }
  void end() {
    const std::lock_guard lock(calls_);
    destroy();
  }
  TaskState poll(PendingCall& call, const TaskQueue& queue);

 private:
  [[nodiscard]] Status start(PendingCall& call, const TaskQueue& queue);
  Result<bool> advance(PendingCall& call, const TaskQueue& queue);
  TaskState end_after_grace();
  void divide(const PendingCall& call, const TaskQueue& queue) const;
  // Afterwards no buffer is touched. Requires calls_.
  void destroy() {
    if (ended_) return;
    ended_ = true;
    static_cast<void>(ask(*adaptor_, "destroy", [this] {
      adaptor_->calls.destroy(handle_);
      return 0;
    }));
  }

  const std::shared_ptr<const Part> adaptor_;
  std::mutex calls_;  // one call of the adaptor at a time; guards the members below
  void* handle_;
  bool ended_ = false;
  std::optional<TimePoint> ends_at_;  // set after a failure
  uint64_t next_ = 0;                 // number of the next call to start
  const int n_ranks_, rank_;
  std::atomic<bool> failed_{false}, aborted_{false};
  mutable std::mutex mutex_;  // guards the members below
  Status error_;
  uint64_t issued_ = 0;
  std::vector<std::unique_ptr<PendingCall>> spare_;
};

std::unique_ptr<PendingCall> LibraryCommunicator::issue() {
  const std::lock_guard lock(mutex_);
  if (spare_.empty()) spare_.push_back(std::make_unique<PendingCall>());
  std::unique_ptr<PendingCall> call = std::move(spare_.back());
  spare_.pop_back();
  call->number = issued_++;
  call->started = false;
  return call;
}

Status LibraryCommunicator::start(PendingCall& call, const TaskQueue& queue) {
  for (hetcclLibraryPiece& piece : call.lists.pieces) {
    piece.send = queue.host_address(piece.send);
    piece.recv = queue.host_address(piece.recv);
  }
  for (hetcclLibraryMessage& message : call.lists.messages)
    message.data = queue.host_address(message.data);
  const hetcclLibraryWork work = work_of(
      call.kind, call.type, call.op == RedOp::Avg ? RedOp::Sum : call.op, call.lists, nullptr);
  HETCCL_TRY(ask(*adaptor_, "a call cannot start",
                 [&] { return adaptor_->calls.start(handle_, &work, &call.request); }));
  call.started = true;
  return {};
}

// Advances `call`. Returns whether it is complete.
Result<bool> LibraryCommunicator::advance(PendingCall& call, const TaskQueue& queue) {
  if (!call.started) {
    if (call.number != next_) return false;
    HETCCL_TRY(start(call, queue));
    ++next_;
  }
  int done = 0;
  HETCCL_TRY(ask(*adaptor_, "a call has failed",
                 [&] { return adaptor_->calls.test(handle_, call.request, &done); }));
  return done != 0;
}

TaskState LibraryCommunicator::poll(PendingCall& call, const TaskQueue& queue) {
  {
    const std::lock_guard lock(calls_);
    if (failed_.load(std::memory_order_acquire)) return end_after_grace();
    if (ended_) return TaskState::Done;
    const auto done = advance(call, queue);
    if (!done.ok()) {
      fail(done.status());
      return end_after_grace();
    }
    if (!done.value()) return TaskState::Pending;
  }
  if (call.op == RedOp::Avg) divide(call, queue);
  return TaskState::Done;
}

// Requires calls_. Ending the adaptor makes the other ranks fail, too, so give them time to learn
// the cause.
TaskState LibraryCommunicator::end_after_grace() {
  const TimePoint now = steady_clock().now();
  if (!ends_at_) ends_at_ = now + kGrace;
  if (!ended_ && !aborted_.load(std::memory_order_acquire) && now < *ends_at_)
    return TaskState::Pending;
  destroy();
  return TaskState::Done;
}

void LibraryCommunicator::divide(const PendingCall& call, const TaskQueue& queue) const {
  for (const hetcclLibraryPiece& piece : call.lists.pieces) {
    if (call.kind == hetcclLibraryReduce && piece.root != rank_) continue;
    const void* sum = piece.recv;
    queue.reduce(piece.recv, &sum, 1, piece.count, call.type, RedOp::Avg,
                 static_cast<uint32_t>(n_ranks_), nullptr);
  }
}

bool reduces_by(const hetcclLibraryAdaptor& library, DataType type, RedOp op) {
  if (!is_valid(type) || !is_valid(op) || !applies(op, type) || op == RedOp::PreMulSum)
    return false;
  // A sum in a short type has lost the bits that its average needs.
  if (op == RedOp::Avg && size_of(type) < 4) return false;
  return has_reduction(library, type, op == RedOp::Avg ? RedOp::Sum : op);
}

bool LibraryCommunicator::reduces(DataType type, RedOp op) const {
  return reduces_by(adaptor_->calls, type, op);
}

// A call on a stream. However it ends, it returns its memory to the communicator.
class Task {
 public:
  Task(std::shared_ptr<LibraryCommunicator> communicator, std::unique_ptr<PendingCall> call,
       const TaskQueue* queue)
      : communicator_(std::move(communicator)), call_(std::move(call)), queue_(queue) {}
  ~Task() {
    if (call_ != nullptr) communicator_->give_back(std::move(call_));
  }
  Task(Task&&) noexcept = default;
  Task& operator=(Task&&) = delete;
  TaskState operator()() { return communicator_->poll(*call_, *queue_); }

 private:
  std::shared_ptr<LibraryCommunicator> communicator_;
  std::unique_ptr<PendingCall> call_;  // null: moved away
  const TaskQueue* queue_;
};

class AdaptorCommunicator : public Communicator {
 public:
  AdaptorCommunicator(std::shared_ptr<LibraryCommunicator> communicator, uint32_t capabilities)
      : communicator_(std::move(communicator)), capabilities_(capabilities) {}
  ~AdaptorCommunicator() override { communicator_->end(); }
  AdaptorCommunicator(const AdaptorCommunicator&) = delete;
  AdaptorCommunicator& operator=(const AdaptorCommunicator&) = delete;

  Status all_reduce(const void* send, void* recv, size_t count, DataType type, const Reducer& how,
                    void* stream) override {
    const Shard whole{0, send, recv, count};
    return reduce_shards(hetcclLibraryAllReduce, {&whole, 1}, type, how, stream);
  }
  Status reduce(std::span<const Shard> shards, DataType type, const Reducer& how,
                void* stream) override {
    HETCCL_TRY(check_ranks(shards, communicator_->n_ranks()));
    return reduce_shards(hetcclLibraryReduce, shards, type, how, stream);
  }
  Status broadcast(std::span<const Shard> shards, DataType type, void* stream) override {
    HETCCL_TRY(check_broadcast(shards, communicator_->n_ranks(), capabilities_));
    return enqueue(hetcclLibraryBroadcast, type, {}, shards, {}, stream);
  }
  Status exchange(std::span<const Transfer> transfers, DataType type, void* stream) override {
    HETCCL_TRY(
        check_exchange(transfers, communicator_->n_ranks(), communicator_->rank(), capabilities_));
    return enqueue(hetcclLibraryExchange, type, {}, {}, transfers, stream);
  }
  Status barrier(void* stream) override {
    return enqueue(hetcclLibraryBarrier, DataType::Uint8, {}, {}, {}, stream);
  }
  [[nodiscard]] Status async_error() const override { return communicator_->error(); }
  void abort() override { communicator_->abort(); }
  [[nodiscard]] ShmSource* shm_source() override { return nullptr; }

 private:
  Status reduce_shards(hetcclLibraryCall kind, std::span<const Shard> shards, DataType type,
                       const Reducer& how, void* stream) {
    if (!communicator_->reduces(type, how.op)) {
      return error(ErrorCode::Unsupported, "%s does not reduce %s by %s",
                   communicator_->name().c_str(), std::string(name_of(type)).c_str(),
                   std::string(name_of(how.op)).c_str());
    }
    return enqueue(kind, type, how.op, shards, {}, stream);
  }
  Status enqueue(hetcclLibraryCall kind, DataType type, RedOp op, std::span<const Shard> shards,
                 std::span<const Transfer> transfers, void* stream) {
    HETCCL_TRY(communicator_->error());
    if (stream == nullptr)
      return error(ErrorCode::InvalidArgument,
                   "a collective of hosts needs a stream of the host device");
    auto* queue = static_cast<TaskQueue*>(stream);
    auto call = communicator_->issue();
    call->kind = kind;
    call->type = type;
    call->op = op;
    call->lists.set(shards, transfers);
    queue->push(Task(communicator_, std::move(call), queue));
    return {};
  }

  const std::shared_ptr<LibraryCommunicator> communicator_;
  const uint32_t capabilities_;
};

class AdaptorLibrary : public FoundLibrary {
 public:
  using FoundLibrary::FoundLibrary;
  [[nodiscard]] bool supports(DataType type, RedOp op) const override {
    return reduces_by(part()->calls, type, op);
  }
  Result<std::unique_ptr<Communicator>> init(const UniqueId& id, int n_ranks, int rank, Waker*,
                                             const WaitLimit& limit) override {
    using Made = std::shared_ptr<LibraryCommunicator>;
    if (n_ranks < 1 || rank < 0 || rank >= n_ranks)
      return error(ErrorCode::InvalidArgument, "rank %d of %d ranks", rank, n_ranks);
    const auto attempt = [part = part(), id, n_ranks, rank,
                          ms = limit.timeout_ms]() -> Result<Made> {
      HETCCL_ASSIGN(void* made, init_by(*part, id, n_ranks, rank, ms));
      return std::make_shared<LibraryCommunicator>(part, made, n_ranks, rank);
    };
    HETCCL_ASSIGN(auto communicator, run_within<Made>(limit, "init", attempt));
    return std::unique_ptr<Communicator>(
        std::make_unique<AdaptorCommunicator>(std::move(communicator), part()->calls.capabilities));
  }
};

}  // namespace

Result<int> score_of(const std::shared_ptr<const adaptor::Adaptor>& adaptor,
                     const WaitLimit& limit) {
  const auto attempt = [adaptor]() -> Result<int> {
    int score = 0;
    HETCCL_TRY(ask(*adaptor->library, "score", [&] {
      score = std::max(adaptor->library->calls.score(), 0);
      return 0;
    }));
    return score;
  };
  return run_within<int>(limit, "score", attempt);
}

std::unique_ptr<Library> make_adaptor_library(
    const std::shared_ptr<const adaptor::Adaptor>& adaptor) {
  return std::make_unique<AdaptorLibrary>(adaptor);
}

}  // namespace hetccl::ccl
