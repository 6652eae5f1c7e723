// The requests that the program holds for what hetccl does. Each is one of the MPI's own, a
// generalized one or for a persistent call a receive from this rank itself, so every function of
// MPI takes it. It becomes complete when the program waits or tests: this library stands before
// these functions, too. They tell its error (outcomes.h, waits.h).
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
  /// After MPI_Init.
  void open();
  /// Before MPI_Finalize: waits for what is under way, `timeout_ms` at most. Returns how many
  /// requests are not complete, which then stay as they are.
  [[nodiscard]] int finish(int64_t timeout_ms);

  /// Writes a request for `work` to `place`. The MPI's error code.
  int add(std::unique_ptr<Work> work, Word comm, void* place);
  /// The same of a persistent request, not active. `call` is one on `comm`.
  int add_persistent(std::unique_ptr<PersistentCall> call, Word comm, void* place);
  /// MPI_Start of a request of add_persistent, and false of all others.
  bool start_persistent(Word request, int* code);
  /// Before MPI_Request_free of it.
  void forget_persistent(Word request);

  [[nodiscard]] bool any_pending() const { return pending_.load(std::memory_order_acquire) > 0; }
  /// Completes the requests whose work is done.
  void advance();
  /// Waits at most about a millisecond for `request`, and lets the MPI move its messages. False
  /// where it stands for nothing that is under way.
  bool await(Word request);

 private:
  // A request that the program waits for.
  struct Pending {
    Pending(std::unique_ptr<Work> its_work, Word its_comm, Word its_request = 0, int its_tag = 0,
            Status its_status = {})
        : work(std::move(its_work)),
          comm(its_comm),
          request(its_request),
          tag(its_tag),
          status(std::move(its_status)) {}

    std::unique_ptr<Work> work;  // null: it could not begin
    Word comm;
    Word request;  // of the program
    int tag;       // persistent: completes the receive; 0: generalized
    Status status;
    std::shared_ptr<Outcome> outcome = std::make_shared<Outcome>();
    std::optional<Received> received;
    std::atomic<bool> cancel{false};       // the program wishes so
    std::atomic<bool> freed{false};        // the MPI has freed its request, which may be early
    std::atomic<bool> left_by_one{false};  // of the MPI and `list_`, one has let go of this
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
  std::mutex mutex_;  // guards what follows
  std::list<std::unique_ptr<Pending>> list_;
  std::unordered_map<Word, Persistent> persistent_;
  Word self_ = 0;               // this rank alone
  int tags_ = 0;                // given so far
  std::vector<int> free_tags_;  // of these, of requests that are freed
};

}  // namespace hetccl::mpi
