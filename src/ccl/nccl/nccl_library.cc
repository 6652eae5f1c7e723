#include "ccl/nccl/nccl_library.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <functional>
#include <mutex>
#include <optional>
#include <utility>

#include "base/bell.h"
#include "base/clock.h"
#include "base/exception.h"
#include "base/heap.h"
#include "base/thread.h"
#include "ccl/nccl/communicator.h"
#include "ccl/nccl/warm_up.h"

namespace hetccl::ccl {
namespace {

using namespace nccl;

// The interval at which a waiting caller checks its Cancel.
constexpr auto kGlance = std::chrono::milliseconds(5);
// A pair is made while others launch collectives, and streams share the GPU's hardware queues. If
// one rank's first message is queued ahead of a collective and the other's behind it, all four wait
// for each other. So messages that have not met within kMeetingTime after enqueueing are aborted,
// and within kEnqueueTime those that cannot even be enqueued (full queues), connecting included.
constexpr auto kMeetingTime = std::chrono::milliseconds(100);
constexpr auto kEnqueueTime = std::chrono::milliseconds(2000);

// One init, shared by its thread and its caller; either may end first.
class Attempt {
 public:
  using Made = PendingPair::Made;
  // `wake` is called when `poll` has news.
  Attempt(const WaitLimit& limit, std::function<void()> wake)
      : limit_(limit), deadline_(limit.deadline()), wake_(std::move(wake)) {}
  // Called by the thread: hands over its result.
  void finish(Made result) {
    std::lock_guard lock(mutex_);
    if (abandoned_) return;
    result_ = std::move(result);
    wake_();
  }
  [[nodiscard]] bool abandoned() {
    std::lock_guard lock(mutex_);
    return abandoned_;
  }
  // Called by the thread: its communicator is aborted unless `settle` comes within `time`. `handle`
  // is in use meanwhile.
  void end_after(std::chrono::milliseconds time, std::shared_ptr<Handle> handle) {
    std::lock_guard lock(mutex_);
    if (late_ || abandoned_) return;
    handle_ = std::move(handle);
    end_at_ = limit_.now() + time;
    wake_();
  }
  // Called by the thread: returns whether it was in time.
  bool settle() {
    std::lock_guard lock(mutex_);
    handle_.reset();
    return !late_;
  }
  // Called by the caller: see PendingPair::poll.
  std::optional<Made> poll(TimePoint now, TimePoint& again) {
    const std::lock_guard lock(mutex_);
    if (result_) return std::move(*result_);
    Status status = limit_.cancelled();
    if (status.ok() && now >= deadline_) {
      status = error(ErrorCode::Timeout,
                     "not all ranks of the cluster called NCCL's init within %lld ms",
                     static_cast<long long>(limit_.timeout_ms));
    }
    if (handle_ != nullptr && now >= end_at_) end_communicator();
    if (!status.ok()) {
      abandon_locked();
      return status;
    }
    again = std::min(again, deadline_);
    if (handle_ != nullptr) again = std::min(again, std::max(end_at_, now + kGlance));
    return std::nullopt;
  }
  // Called by the caller, which no longer wants the result.
  void abandon() {
    const std::lock_guard lock(mutex_);
    abandon_locked();
  }

 private:
  void abandon_locked() {
    abandoned_ = true;
    if (result_ && result_->ok() && result_->value() != nullptr) result_->value()->abort();
    if (handle_ != nullptr) end_communicator();
  }
  // Aborts from here, because the thread may be inside a call that waits for the device.
  void end_communicator() {
    if (!start_ending(handle_, true)) return;  // retried at the next glance
    handle_->announce_end();
    handle_.reset();
    late_ = true;
  }

  const WaitLimit limit_;
  const TimePoint deadline_;
  const std::function<void()> wake_;
  std::mutex mutex_;  // guards the members below
  std::optional<Made> result_;
  std::shared_ptr<Handle> handle_;  // aborted at this time
  TimePoint end_at_;
  bool abandoned_ = false, late_ = false;
};

class PendingNcclPair final : public PendingPair {
 public:
  explicit PendingNcclPair(std::shared_ptr<Attempt> attempt) : attempt_(std::move(attempt)) {}
  ~PendingNcclPair() override { attempt_->abandon(); }
  PendingNcclPair(const PendingNcclPair&) = delete;
  PendingNcclPair& operator=(const PendingNcclPair&) = delete;
  std::optional<Made> poll(TimePoint now, TimePoint& again) override {
    return attempt_->poll(now, again);
  }

 private:
  const std::shared_ptr<Attempt> attempt_;
};

// Returns true from Hopper on. AMD's GPUs are decided by rccl_reductions.
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
  // `load_nccl` refuses libraries without ncclSend and ncclRecv, which broadcasts also need.
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
    return init({id, n_ranks, rank}, limit);
  }

  Result<std::unique_ptr<Communicator>> init_with_blocks(const UniqueId& id, int n_ranks, int rank,
                                                         const Blocks& blocks,
                                                         const WaitLimit& limit) override {
    HETCCL_TRY(check_config());
    return init({id, n_ranks, rank, 0, blocks}, limit);
  }

  Result<std::unique_ptr<PendingPair>> begin_pair(const PairSeat& seat, Waker* /*waker*/,
                                                  const WaitLimit& limit,
                                                  std::function<void()> wake) override {
    HETCCL_TRY(check_config());
    HETCCL_ASSIGN(auto attempt,
                  begin({seat.id, 2, seat.rank, seat.blocks}, limit, std::move(wake)));
    return std::unique_ptr<PendingPair>(std::make_unique<PendingNcclPair>(std::move(attempt)));
  }

 private:
  struct RankOptions {
    UniqueId id;
    int n_ranks = 0, rank = 0;
    int pair_blocks = 0;  // for messages only; 0: not a pair
    Blocks blocks{};      // for other communicators
  };

  [[nodiscard]] Status check_config() const {
    if (api_->init_with) return {};
    return error(ErrorCode::Unsupported, "%s lacks ncclCommInitRankConfig", api_->path.c_str());
  }

  Result<std::unique_ptr<Communicator>> init(const RankOptions& seat,
                                             const WaitLimit& limit) const {
    const auto bell = std::make_shared<Bell>();
    HETCCL_ASSIGN(const auto attempt, begin(seat, limit, [bell] { bell->ring(); }));
    for (;; bell->wait(kGlance)) {
      TimePoint again = TimePoint::max();
      if (auto made = attempt->poll(limit.now(), again)) return std::move(*made);
    }
  }

  // Runs on a separate thread: the two ranks of a pair wait for each other inside NCCL, and ranks
  // make pairs in different orders, so pairs on one thread could wait in a circle.
  Result<std::shared_ptr<Attempt>> begin(const RankOptions& seat, const WaitLimit& limit,
                                         std::function<void()> wake) const {
    if (seat.rank < 0 || seat.rank >= seat.n_ranks)
      return error(ErrorCode::InvalidArgument, "rank %d in a cluster of %d ranks", seat.rank,
                   seat.n_ranks);
    auto attempt = std::make_shared<Attempt>(limit, std::move(wake));
    // NCCL's own threads, of which each communicator has some, inherit this thread's name.
    HETCCL_ASSIGN(auto thread,
                  start_thread("nccl", [attempt, api = api_, workspace = workspace_, seat] {
                    try {
                      attempt->finish(connect(api, workspace, seat, *attempt));
                    } catch (...) {
                      report_exception([&](const Status& why) { attempt->finish(why); });
                    }
                    return_freed_memory();
                  }));
    thread.detach();
    return attempt;
  }

  static Result<std::unique_ptr<Communicator>> connect(const std::shared_ptr<const Api>& api,
                                                       const std::shared_ptr<Workspace>& workspace,
                                                       const RankOptions& seat, Attempt& attempt) {
    workspace->make_current();
    WarmUp warm_up(*workspace, seat.pair_blocks > 0 ? WarmUp::Calls::Messages : WarmUp::Calls::All);
    HETCCL_TRY(warm_up.reserve(seat.n_ranks));
    auto handle = std::make_shared<Handle>(api, workspace);
    CommConfig config;
    const bool pair = seat.pair_blocks > 0;
    if (pair) config.max_ctas = seat.pair_blocks;
    if (seat.blocks.least > 0) config.min_ctas = seat.blocks.least;
    if (seat.blocks.most > 0) config.max_ctas = seat.blocks.most;
    const bool configured = pair || seat.blocks.given();
    HETCCL_TRY(handle->open(seat.id, seat.n_ranks, seat.rank, configured ? &config : nullptr));
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
