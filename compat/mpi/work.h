// What a request of the program stands for.
#pragma once

#include <cstdint>
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
  /// After is_done.
  [[nodiscard]] virtual std::optional<Received> received() const { return std::nullopt; }
};

/// A call of hetccl, in parts, each on an endpoint.
class Operation : public Work {
 public:
  Operation(std::shared_ptr<Communicator> owner, std::unique_ptr<Exchange> exchange);
  ~Operation() override;

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

}  // namespace hetccl::mpi
