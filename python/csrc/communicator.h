/// One hetccl communicator. Uses only the C API, and nothing of torch.
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

/// A failed call's result and error text.
struct Failure {
  hetcclResult_t result;
  std::string text;
};

/// The failure of this thread's last failed call.
[[nodiscard]] Failure last_failure(hetcclResult_t result);

/// Identifies an order. Collectives form one order, and so do messages to each rank, and messages
/// from each rank. A message that waits for its other end delays nothing in other orders. Messages
/// of several orders that start in one call keep their place in each.
struct OrderKey {
  enum class Kind : uint8_t { Collectives, Send, Recv, Several } kind = Kind::Collectives;
  int peer = -1;
  auto operator<=>(const OrderKey&) const = default;
};

/// `wire`, `wire_gather` and `wire_inside` of hetcclConfig_t: the encoding of sums and of
/// all-gathers, and whether to encode inside one cluster.
struct Wire {
  std::optional<std::string> sums, gathers;
  std::optional<bool> inside;
};

/// No deadline, for functions that take one.
inline constexpr std::chrono::milliseconds kForever{-1};

/// Thread-safe. A closed communicator returns the failure that closed it.
class Communicator {
 public:
  using Milliseconds = std::chrono::milliseconds;

  /// Joins a communicator; blocks until all ranks have joined. `device` is this rank's: "host",
  /// "cuda:1". On failure returns nullptr and fills in `failure`.
  [[nodiscard]] static std::shared_ptr<Communicator> join(const hetcclUniqueId& id, int rank,
                                                          int size, const std::string& device,
                                                          Milliseconds timeout, const Wire& wire,
                                                          Failure& failure);
  /// Splits. Collective over this communicator: ranks of the same `color` form `child`, ordered by
  /// `key`; with HETCCL_SPLIT_NOCOLOR `child` is null. `device` is this rank's, as for `join`.
  /// Blocks until all ranks have called it.
  [[nodiscard]] std::optional<Failure> split(int color, int key, const std::string& device,
                                             Milliseconds timeout, const Wire& wire,
                                             std::shared_ptr<Communicator>& child);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  /// Starts `calls`, each with a deadline of `timeout`: messages at the same time, collectives in
  /// order. On a GPU they are enqueued on `stream`, a stream of the vendor. On the host `work`
  /// tells when they are complete; if it is null, this thread drives them and they are complete on
  /// return.
  [[nodiscard]] std::optional<Failure> start(const std::vector<ApiCall>& calls,
                                             hetcclStream_t stream, Milliseconds timeout,
                                             hetcclWork_t* work);
  /// Calls `use` with the handle.
  [[nodiscard]] std::optional<Failure> with(const std::function<hetcclResult_t(hetcclComm_t)>& use);
  /// Whether `stream` is recording a graph: work enqueued there runs whenever the graph does.
  [[nodiscard]] bool is_capturing(hetcclStream_t stream);
  [[nodiscard]] static bool reached(const hetcclWork_t& work);
  /// Waits and drives progress. Returns false once `timeout` has passed; a negative timeout means
  /// no limit.
  [[nodiscard]] static bool wait_all(const std::vector<hetcclWork_t>& works, Milliseconds timeout);
  /// Whether this process is a forked child of the one that joined: nothing completes here.
  [[nodiscard]] bool forked() const;
  /// The first failure of asynchronous work, or of the communicator as a whole.
  [[nodiscard]] std::optional<Failure> failure();

  /// Waits for enqueued work within its deadlines; aborts at once if work has failed.
  void close();
  /// Ends enqueued work on every rank. Later calls report `reason`.
  void abort(const std::string& reason);
  /// For the end of the process: waits at most `grace` for enqueued work, then aborts.
  void close_within(Milliseconds grace);

  [[nodiscard]] std::optional<Failure> stats(hetcclCommStats_t& out);
  /// JSON, as is `tuning`.
  [[nodiscard]] std::optional<Failure> topology(std::string& out);
  [[nodiscard]] std::optional<Failure> tuning(std::string& out);

 private:
  explicit Communicator(hetcclComm_t comm);
  using Teller = hetcclResult_t (*)(hetcclComm_t comm, const char** json);
  [[nodiscard]] std::optional<Failure> tell(Teller teller, std::string& out);
  /// Gets the handle, or returns why no further call is possible.
  [[nodiscard]] std::optional<Failure> begin_call(hetcclComm_t& comm);
  /// Returns the failure to report for a call that returned `result`.
  [[nodiscard]] std::optional<Failure> end_call(hetcclResult_t result);
  [[nodiscard]] hetcclComm_t handle();
  /// Ends the communicator; aborts it if `failed` is set.
  void end(std::optional<Failure> failed);
  /// Why no further call is possible.
  [[nodiscard]] std::optional<Failure> refusal_locked() const;

  /// Not held during calls of the C API that may block: `abort` and `failure` must get in to end or
  /// explain such a call. The call may then find its handle invalid, which is an ordinary error.
  std::mutex mutex_;
  std::mutex end_mutex_;  ///< held while ending the communicator; taken before `mutex_`
  hetcclComm_t comm_;     ///< null once closed or aborted
  bool closing_ = false;
  const pid_t owner_;  ///< a forked child must not use the engine
  std::optional<Failure> failed_;
};

}  // namespace hetccl::torch_backend
