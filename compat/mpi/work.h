// Work that a request of the program stands for.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <vector>

#include "base/status.h"
#include "mpi/endpoint.h"
#include "mpi/exchange.h"

namespace hetccl::mpi {

class Communicator;

/// Fields of MPI_Status for a received message; a collective has none.
struct Received {
  int source, tag;
  int64_t bytes;
  bool cancelled;
};

/// Pending until `is_done`. Used by one thread at a time.
class Work {
 public:
  virtual ~Work() = default;
  virtual bool is_done() = 0;
  /// Waits at most about a millisecond, driving the work meanwhile.
  virtual void wait_briefly() = 0;
  /// Called after is_done: copies results to their place.
  virtual Status finish() = 0;
  /// Cancels a message that has not begun to arrive; a collective goes on.
  virtual void cancel() {}
  /// Called after is_done.
  [[nodiscard]] virtual std::optional<Received> received() const { return std::nullopt; }
};

/// A call that the program can start many times.
class PersistentCall {
 public:
  virtual ~PersistentCall() = default;
  virtual Result<std::unique_ptr<Work>> begin() = 0;
};

/// A call of hetccl in parts, each on its own endpoint.
class ExchangeWork : public Work {
 public:
  ExchangeWork(std::shared_ptr<Communicator> owner, std::unique_ptr<Exchange> exchange);
  /// If a part has failed, the others may still run, so the scratch memory is leaked.
  ~ExchangeWork() override;

  Status start(Endpoint& endpoint, size_t part, size_t parts);
  /// Waits until it is done.
  Status wait();
  bool is_done() override;
  void wait_briefly() override;
  Status finish() override;

 private:
  struct Part {
    Endpoint* endpoint;
    uint64_t mark;
  };
  std::shared_ptr<Communicator> owner_;  // owns the endpoints
  std::unique_ptr<Exchange> exchange_;
  std::vector<Part> parts_;
};

/// A persistent call of hetccl, on an endpoint that `owner` has reserved for it.
class PersistentExchange : public PersistentCall {
 public:
  PersistentExchange(const MpiCall& call, std::shared_ptr<Communicator> owner, Endpoint* endpoint,
                     const Library& library);
  ~PersistentExchange() override;
  Result<std::unique_ptr<Work>> begin() override;

 private:
  // Returns the call with types that stay valid, kept in types_.
  MpiCall keep_types(MpiCall call);
  const std::shared_ptr<Communicator> owner_;
  Endpoint* const endpoint_;
  const Library& library_;
  std::list<KeptType> types_;
  const KeptCall kept_;
};

}  // namespace hetccl::mpi
