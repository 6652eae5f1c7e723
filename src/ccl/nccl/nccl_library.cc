#include "ccl/nccl/nccl_library.h"

#include <charconv>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "base/exception.h"
#include "base/heap.h"
#include "base/thread.h"
#include "ccl/nccl/communicator.h"
#include "ccl/nccl/warm_up.h"

namespace hetccl::ccl {
namespace {

using namespace nccl;

// How often a caller that waits looks at its Cancel.
constexpr auto kGlance = std::chrono::milliseconds(5);
// A pair is made at any moment, while others launch collectives, and streams share the GPU's
// hardware queues: where a rank's first message is ahead of a collective in one, and the other
// rank's is behind it, all four wait for each other. Messages that have not met so long after they
// were enqueued are ended; and so are those that cannot even be enqueued (full queues), the
// connecting included.
constexpr auto kMeetingTime = std::chrono::milliseconds(100);
constexpr auto kEnqueueTime = std::chrono::milliseconds(2000);

// One init: its thread and its caller, either of which may be gone first.
class Attempt {
 public:
  // The thread's: hands over its result.
  void finish(Result<std::unique_ptr<Communicator>> result) {
    std::lock_guard lock(mutex_);
    if (abandoned_) return;
    result_ = std::move(result);
    done_.notify_one();
  }
  [[nodiscard]] bool abandoned() {
    std::lock_guard lock(mutex_);
    return abandoned_;
  }
  // The thread's: its communicator is to end if so much time passes before `settle`. `handle` is in
  // use meanwhile.
  void end_after(std::chrono::milliseconds time, std::shared_ptr<Handle> handle) {
    std::lock_guard lock(mutex_);
    if (late_) return;
    handle_ = std::move(handle);
    end_at_ = steady_clock().now() + time;
  }
  // The thread's: whether it was in time.
  bool settle() {
    std::lock_guard lock(mutex_);
    handle_.reset();
    return !late_;
  }
  // The caller's: waits within `limit`.
  Result<std::unique_ptr<Communicator>> wait(const WaitLimit& limit) {
    const TimePoint deadline = steady_clock().now() + std::chrono::milliseconds(limit.timeout_ms);
    std::unique_lock lock(mutex_);
    while (!result_) {
      Status status = limit.cancelled();
      if (status.ok() && steady_clock().now() >= deadline) {
        status = error(Code::Timeout,
                       "the ranks of the cluster did not all come to NCCL's init within %lld ms",
                       static_cast<long long>(limit.timeout_ms));
      }
      if (handle_ != nullptr && (!status.ok() || steady_clock().now() >= end_at_))
        end_communicator();
      if (!status.ok()) {
        abandoned_ = true;
        return status;
      }
      done_.wait_for(lock, kGlance);
    }
    return std::move(*result_);
  }

 private:
  // The thread may be inside a call that waits for the device: nobody else can end that.
  void end_communicator() {
    if (!start_ending(handle_, true)) return;  // again at the next glance
    handle_->announce_end();
    handle_.reset();
    late_ = true;
  }

  std::mutex mutex_;
  std::condition_variable done_;
  std::optional<Result<std::unique_ptr<Communicator>>> result_;
  std::shared_ptr<Handle> handle_;  // to be ended at this time
  TimePoint end_at_;
  bool abandoned_ = false, late_ = false;
};

// From Hopper on; not on AMD's GPUs (rccl_reductions).
bool computes_fp8(std::string_view architecture) {
  constexpr std::string_view kPrefix = "sm_";
  if (!architecture.starts_with(kPrefix)) return false;
  const char* end = architecture.data() + architecture.size();
  int number = 0;
  std::from_chars(architecture.data() + kPrefix.size(), end, number);
  return number >= 90;
}

class NcclLibrary : public Library {
 public:
  NcclLibrary(std::shared_ptr<const Api> api, std::shared_ptr<Workspace> workspace, Reach reach)
      : api_(std::move(api)), workspace_(std::move(workspace)), reach_(reach) {}

  [[nodiscard]] std::string name() const override { return api_->name; }
  [[nodiscard]] std::string version() const override { return api_->version; }
  [[nodiscard]] bool supports(DataType type, RedOp op) const override {
    const bool computes = !is_fp8(type) || computes_fp8(workspace_->architecture());
    return is_valid(type) && is_valid(op) && computes && has_type(api_->version_code, type) &&
           has_operator(*api_, op);
  }
  // `load_nccl` refuses a library without ncclSend and ncclRecv, which broadcasts need, too.
  [[nodiscard]] bool supports_exchange() const override { return true; }
  [[nodiscard]] bool makes_pairs() const override { return static_cast<bool>(api_->init_with); }
  [[nodiscard]] Reach reach() const override { return reach_; }

  Result<UniqueId> unique_id(int /*n_ranks*/, const WaitLimit& /*limit*/) override {
    UniqueId id;
    HETCCL_TRY(explain(*api_, api_->unique_id(&id), "ncclGetUniqueId", nullptr));
    return id;
  }

  Result<std::unique_ptr<Communicator>> init(const UniqueId& id, int n_ranks, int rank,
                                             Waker* /*waker*/, const WaitLimit& limit) override {
    return attempt({id, n_ranks, rank}, limit);
  }

  Result<std::unique_ptr<Communicator>> init_pair(const UniqueId& id, int rank, int blocks,
                                                  Waker* /*waker*/,
                                                  const WaitLimit& limit) override {
    if (!makes_pairs())
      return error(Code::Unsupported, "%s lacks ncclCommInitRankConfig", api_->path.c_str());
    return attempt({id, 2, rank, blocks}, limit);
  }

 private:
  struct Seat {
    UniqueId id;
    int n_ranks = 0, rank = 0;
    int pair_blocks = 0;  // of one for messages alone
  };

  Result<std::unique_ptr<Communicator>> attempt(const Seat& seat, const WaitLimit& limit) {
    if (seat.rank < 0 || seat.rank >= seat.n_ranks)
      return error(Code::InvalidArgument, "rank %d in a cluster of %d ranks", seat.rank,
                   seat.n_ranks);
    auto attempt = std::make_shared<Attempt>();
    // NCCL's own threads, of which each communicator has some, take their name from this one.
    HETCCL_ASSIGN(auto thread,
                  start_thread("nccl", [attempt, api = api_, workspace = workspace_, seat] {
                    try {
                      attempt->finish(connect(api, workspace, seat, *attempt));
                    } catch (...) {
                      tell_caught([&](const Status& why) { attempt->finish(why); });
                    }
                    return_freed_memory();
                  }));
    thread.detach();
    return attempt->wait(limit);
  }

  static Result<std::unique_ptr<Communicator>> connect(const std::shared_ptr<const Api>& api,
                                                       const std::shared_ptr<Workspace>& workspace,
                                                       const Seat& seat, Attempt& attempt) {
    workspace->make_current();
    WarmUp warm_up(*workspace, seat.pair_blocks > 0 ? WarmUp::Calls::Messages : WarmUp::Calls::All);
    HETCCL_TRY(warm_up.reserve(seat.n_ranks));
    auto handle = std::make_shared<Handle>(api, workspace);
    CommConfig few_blocks;
    few_blocks.max_ctas = seat.pair_blocks;
    const bool pair = seat.pair_blocks > 0;
    HETCCL_TRY(handle->open(seat.id, seat.n_ranks, seat.rank, pair ? &few_blocks : nullptr));
    auto communicator = std::make_unique<NcclCommunicator>(handle, seat.n_ranks, seat.rank);
    if (pair) attempt.end_after(kEnqueueTime, handle);
    const Status ran = warm_up.run(
        *communicator, seat.n_ranks, [&] { return attempt.abandoned(); },
        [&] {
          if (pair) attempt.end_after(kMeetingTime, handle);
        });
    if (!attempt.settle()) return std::unique_ptr<Communicator>();
    HETCCL_TRY(ran.with("NCCL's first calls"));
    return std::unique_ptr<Communicator>(std::move(communicator));
  }

  const std::shared_ptr<const Api> api_;
  const std::shared_ptr<Workspace> workspace_;
  const Reach reach_;
};

ReductionSet reductions(bool fp8) {
  return ReductionSet::where([&](DataType type, RedOp op) {
    return has_type(kFp8Version, type) && (fp8 || !is_fp8(type)) && !is_bitwise(op);
  });
}

}  // namespace

ReductionSet nccl_reductions(std::string_view architecture) {
  return reductions(architecture.empty() || computes_fp8(architecture));
}

ReductionSet rccl_reductions(std::string_view /*architecture*/) {
  return reductions(false);
}

std::unique_ptr<Library> make_nccl_library(std::shared_ptr<const nccl::Api> api,
                                           std::shared_ptr<Workspace> workspace, Reach reach) {
  return std::make_unique<NcclLibrary>(std::move(api), std::move(workspace), reach);
}

}  // namespace hetccl::ccl
