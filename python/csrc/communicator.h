/// One hetccl communicator, over the C API alone: knows nothing of torch.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <compare>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "api_call.h"
#include "hetccl/hetccl.h"

namespace hetccl::torch_backend {

/// What a call of the C API returned, with its text.
struct Failure {
  hetcclResult_t result;
  std::string text;
};

/// The text of this thread's last failed call.
[[nodiscard]] Failure last_failure(hetcclResult_t result);

/// Names an order: the collectives have one, and so have messages to, and from, each rank. A
/// message that waits for its other end holds up nothing of another order. Messages of several
/// orders that start in one call keep each of them.
struct OrderKey {
  enum class Kind : uint8_t { Collectives, Send, Recv, Several } kind = Kind::Collectives;
  int peer = -1;
  auto operator<=>(const OrderKey&) const = default;
};

/// hetcclConfig_t's `wire`, `wire_gather` and `wire_inside`: how sums, and all-gathers, are
/// encoded, and whether in one cluster, too.
struct Wire {
  std::optional<std::string> sums, gathers;
  std::optional<bool> inside;
};

/// No deadline, where a function takes one.
inline constexpr std::chrono::milliseconds kForever{-1};

/// Thread-safe. A closed communicator answers with the failure that closed it.
class Communicator {
 public:
  using Milliseconds = std::chrono::milliseconds;

  /// Blocks until all ranks have come. `device` is this rank's: "host", "cuda:1". On failure
  /// returns nullptr and fills `failure`.
  [[nodiscard]] static std::shared_ptr<Communicator> join(const hetcclUniqueId& id, int rank,
                                                          int size, const std::string& device,
                                                          Milliseconds timeout, const Wire& wire,
                                                          Failure& failure);
  /// Collective over this communicator: its ranks of one `color` form `child`, in the order of
  /// their `key`s; with HETCCL_SPLIT_NOCOLOR `child` is null. `device` is this rank's, as for
  /// `join`. Blocks until all ranks have come.
  [[nodiscard]] std::optional<Failure> split(int color, int key, const std::string& device,
                                             Milliseconds timeout, const Wire& wire,
                                             std::shared_ptr<Communicator>& child);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  /// Makes `calls`, each with a deadline of `timeout`: messages at the same time, collectives in
  /// their order. On a GPU they go onto `stream`, the vendor's own. On the host `work` tells when
  /// they are complete; where it is null they are complete on return, driven by this thread.
  [[nodiscard]] std::optional<Failure> start(const std::vector<ApiCall>& calls,
                                             hetcclStream_t stream, Milliseconds timeout,
                                             hetcclWork_t* work);
  /// Calls `use` with the handle.
  [[nodiscard]] std::optional<Failure> with(const std::function<hetcclResult_t(hetcclComm_t)>& use);
  /// Whether `stream` records a graph: what is enqueued there runs whenever the graph does.
  [[nodiscard]] bool is_capturing(hetcclStream_t stream);
  [[nodiscard]] static bool reached(const hetcclWork_t& work);
  /// Drives progress. False when `timeout` has passed first; no limit when it is negative.
  [[nodiscard]] static bool wait_all(const std::vector<hetcclWork_t>& works, Milliseconds timeout);
  /// Whether this is a forked child of the process that joined: nothing ends any more here.
  [[nodiscard]] bool forked() const;
  /// The first failure of asynchronous work, or of the communicator as a whole.
  [[nodiscard]] std::optional<Failure> failure();

  /// Waits for enqueued work within its deadlines, or aborts at once where work has failed.
  void close();
  /// Ends enqueued work on every rank. `reason` is what later calls report.
  void abort(const std::string& reason);
  /// Waits for enqueued work at most `grace`, then aborts: for the end of the process.
  void close_within(Milliseconds grace);

  [[nodiscard]] std::optional<Failure> stats(hetcclCommStats_t& out);
  /// JSON, as the next.
  [[nodiscard]] std::optional<Failure> topology(std::string& out);
  [[nodiscard]] std::optional<Failure> tuning(std::string& out);

 private:
  explicit Communicator(hetcclComm_t comm);
  using Teller = hetcclResult_t (*)(hetcclComm_t comm, const char** json);
  [[nodiscard]] std::optional<Failure> tell(Teller teller, std::string& out);
  /// The handle, or why no further call is possible.
  [[nodiscard]] std::optional<Failure> begin_call(hetcclComm_t& comm);
  /// What to say of a call that returned `result`.
  [[nodiscard]] std::optional<Failure> end_call(hetcclResult_t result);
  [[nodiscard]] hetcclComm_t handle();
  /// Ends the communicator: aborts it where something has `failed`.
  void end(std::optional<Failure> failed);
  /// Why no further call is possible.
  [[nodiscard]] std::optional<Failure> refusal_locked() const;

  /// Never held across a call of the C API that may block: `abort` and `failure` must get in, and
  /// end or explain it. Such a call may find its handle gone, which is an error like any other.
  std::mutex mutex_;
  std::mutex end_mutex_;  ///< held by whoever ends the communicator, before `mutex_`
  hetcclComm_t comm_;     ///< null once it is closed or aborted
  bool closing_ = false;
  const pid_t owner_;  ///< a forked child may not touch the engine
  std::optional<Failure> failed_;
};

}  // namespace hetccl::torch_backend
