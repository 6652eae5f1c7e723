// Requests that the program holds for hetccl's work. Each is a request of the MPI, so every MPI
// function accepts it: a generalized request, or, for a persistent call, a receive from this rank
// itself. It becomes complete while the program waits or tests, since this library exports those
// functions too. They report its error (outcomes.h, waits.h).
#pragma once

#include <atomic>
#include <list>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "mpi/library.h"
#include "mpi/outcomes.h"
#include "mpi/work.h"

namespace hetccl::mpi {

/// Thread-safe.
class Requests {
 public:
  explicit Requests(const Library& library) : library_(library) {}
  /// Called after MPI_Init.
  void open();
  /// Called before MPI_Finalize. Waits for pending work, at most `timeout_ms`. Returns the number
  /// of requests that are still not complete; they stay as they are.
  [[nodiscard]] int finish(int64_t timeout_ms);

  /// Creates a request for `work` and writes it to `place`. Returns the MPI's error code.
  int add(std::unique_ptr<Work> work, Word comm, void* place);
  /// Creates an inactive persistent request. `call` is a call on `comm`.
  int add_persistent(std::unique_ptr<PersistentCall> call, Word comm, void* place);
  /// MPI_Start for a request of add_persistent. Returns false for all other requests.
  bool start_persistent(Word request, int* code);
  /// Called before MPI_Request_free of a persistent request.
  void forget_persistent(Word request);

  [[nodiscard]] bool any_pending() const { return pending_.load(std::memory_order_acquire) > 0; }
  /// Completes the requests whose work is done.
  void advance();
  /// Waits at most about a millisecond for `request` and drives the MPI's progress. Returns false
  /// if the request has no work under way.
  bool await(Word request);

 private:
  // An active request.
  struct Pending {
    Pending(std::unique_ptr<Work> its_work, Word its_comm, Word its_request = 0, int its_tag = 0,
            Status its_status = {})
        : work(std::move(its_work)),
          comm(its_comm),
          request(its_request),
          tag(its_tag),
          status(std::move(its_status)) {}

    std::unique_ptr<Work> work;  // null: it could not start
    Word comm;
    Word request;  // the program's
    int tag;       // of the message that completes the receive of a persistent request; 0:
                   // generalized request
    Status status;
    std::shared_ptr<Outcome> outcome = std::make_shared<Outcome>();
    std::optional<Received> received;
    std::atomic<bool> cancel{false};       // the program has asked to cancel it
    std::atomic<bool> freed{false};        // the MPI has freed its request, perhaps early
    std::atomic<bool> left_by_one{false};  // either the MPI or `list_` has let go of this
  };
  struct Persistent {
    std::unique_ptr<PersistentCall> call;
    Word comm;
    int tag;
    std::shared_ptr<Outcome> outcome;
  };
  static int query(void* state, void* status);
  static int describe(const Pending& pending, void* status);
  static int free_state(void* state);
  static int cancel(void* state, int complete);
  void push(std::unique_ptr<Pending> pending);
  void complete(Pending& pending);

  const Library& library_;
  std::atomic<int> pending_{0};
  std::mutex mutex_;  // guards the members below
  std::list<std::unique_ptr<Pending>> list_;
  std::unordered_map<Word, Persistent> persistent_;
  Word self_ = 0;               // MPI_COMM_SELF's copy for the receives
  int tags_ = 0;                // number of tags given so far
  std::vector<int> free_tags_;  // tags of freed requests
};

}  // namespace hetccl::mpi
