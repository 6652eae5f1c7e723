// What a request of the program stands for.
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

/// What MPI_Wait tells of a message; a collective has none of it.
struct Received {
  int source, tag;
  int64_t bytes;
  bool cancelled;
};

/// Under way until `is_done`. One thread at a time.
class Work {
 public:
  virtual ~Work() = default;
  virtual bool is_done() = 0;
  /// Waits at most about a millisecond, and does what it can to bring the end about.
  virtual void wait_briefly() = 0;
  /// After is_done: brings results to their place.
  virtual Status finish() = 0;
  /// A message that has not begun to arrive shall not; a collective goes on.
  virtual void cancel() {}
  /// After is_done.
  [[nodiscard]] virtual std::optional<Received> received() const { return std::nullopt; }
};

/// What the program starts again and again.
class PersistentCall {
 public:
  virtual ~PersistentCall() = default;
  virtual Result<std::unique_ptr<Work>> begin() = 0;
};

/// A call of hetccl, in parts, each on an endpoint.
class ExchangeWork : public Work {
 public:
  ExchangeWork(std::shared_ptr<Communicator> owner, std::unique_ptr<Exchange> exchange);
  /// What is under way after an error goes on, and its scratch memory is not given back.
  ~ExchangeWork() override;

  Status start(Endpoint& endpoint, size_t part, size_t parts);
  /// Until it is done.
  Status wait();
  bool is_done() override;
  void wait_briefly() override;
  Status finish() override;

 private:
  struct Part {
    Endpoint* endpoint;
    uint64_t mark;
  };
  std::shared_ptr<Communicator> owner_;  // of the endpoints
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
  // The call with types that stay, in types_.
  MpiCall keep_types(MpiCall call);
  const std::shared_ptr<Communicator> owner_;
  Endpoint* const endpoint_;
  const Library& library_;
  std::list<KeptType> types_;
  const KeptCall kept_;
};

}  // namespace hetccl::mpi
