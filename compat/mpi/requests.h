// Calls of hetccl that the program holds a request for. The request is one of the MPI's own, a
// generalized one or for a persistent call a receive from this rank itself, so every function of
// MPI takes it. It becomes complete when the program waits or tests: this library stands before
// these functions, too.
#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "mpi/endpoint.h"
#include "mpi/exchange.h"
#include "mpi/library.h"

namespace hetccl::mpi {

class Communicator;

/// A call under way: its parts, each on an endpoint.
struct Operation {
  std::shared_ptr<Communicator> owner;  ///< of the endpoints
  std::unique_ptr<Exchange> exchange;
  struct Part {
    Endpoint* endpoint;
    uint64_t mark;
  };
  std::vector<Part> parts;

  [[nodiscard]] bool is_done() const;
  /// Brings results to their place. After is_done.
  Status finish();
};

/// Thread-safe.
class Requests {
 public:
  explicit Requests(const Library& library) : library_(library) {}
  /// After MPI_Init.
  void open();
  /// Before MPI_Finalize: waits for what is under way.
  void finish();

  /// Writes a request for `operation` to `place`. The MPI's error code.
  int add(Operation operation, Word comm, void* place);
  /// A persistent request for `call`, not active, on an endpoint that `owner` has reserved.
  int add_persistent(const Call& call, std::shared_ptr<Communicator> owner, Endpoint* endpoint,
                     void* place);
  /// MPI_Start of a request of add_persistent, and false of all others.
  bool start_persistent(Word request, int* code);
  /// Before MPI_Request_free of it.
  void forget_persistent(Word request);

  [[nodiscard]] bool any_pending() const { return pending_.load(std::memory_order_acquire) > 0; }
  /// Completes the requests whose calls are complete.
  void advance();
  /// Waits at most a millisecond for one that is `request`. False where none is.
  bool await(Word request);

 private:
  // A request that the program waits for.
  struct Pending {
    Operation operation;
    Word comm;
    Word request;  // of the program
    int tag;       // persistent: completes the receive; 0: generalized
    Status status;
  };
  struct Persistent {
    KeptCall kept;
    std::shared_ptr<Communicator> owner;
    Endpoint* endpoint;
    int tag;
  };
  static int query(void* state, void* status);
  static int free_state(void* state);
  static int cancel(void* state, int complete);
  void complete(Pending& pending);

  const Library& library_;
  std::atomic<int> pending_{0};
  std::mutex mutex_;  // guards what follows
  std::list<std::unique_ptr<Pending>> list_;
  std::unordered_map<Word, std::unique_ptr<Persistent>> persistent_;
  Word self_ = 0;  // this rank alone
  int tags_ = 0;
};

}  // namespace hetccl::mpi
