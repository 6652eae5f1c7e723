// Who served the program's calls, and why: counted always, since it costs little, and printed at
// MPI_Finalize with HETCCL_MPI_SUMMARY=1.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>

#include "mpi/call.h"

namespace hetccl::mpi {

/// Why the MPI serves a call, or that hetccl does.
enum class Reason : uint8_t {
  Hetccl,        ///< none: hetccl serves it
  Rule,          ///< a rule says so
  Empty,         ///< nothing to move, or one rank
  Communicator,  ///< between two groups, or with processes of another job
  Operator,      ///< an operator or a type that hetccl does not compute
  Gaps,          ///< a datatype with gaps
  NotYet,        ///< the first nonblocking calls of a kind: ranks agree in the next blocking one
  InPlace,       ///< an all-to-all in place
  Concurrent,    ///< another thread is in a collective of the communicator
  NoEndpoint,    ///< hetccl could not connect the ranks
  Leaders,       ///< a rule says so: by leaders of nodes
};
inline constexpr size_t kReasons = 11;

class Summary {
 public:
  explicit Summary(bool wanted) : wanted_(wanted) {}
  /// Times one call, while it lives.
  class Timer {
   public:
    Timer(Summary& summary, const MpiCall& call);
    ~Timer();
    Timer(const Timer&) = delete;
    Timer& operator=(const Timer&) = delete;
    void served(Reason reason, int64_t bytes) { reason_ = reason, bytes_ = bytes; }

   private:
    Summary& summary_;
    const Collective collective_;
    Reason reason_ = Reason::Rule;
    int64_t bytes_ = 0;
    std::chrono::steady_clock::time_point begin_;
  };
  /// Collective over MPI_COMM_WORLD; rank 0 prints.
  void print(const Library& library) const;

 private:
  struct Row {
    std::atomic<uint64_t> calls{0}, bytes{0}, nanoseconds{0};
  };
  const bool wanted_;
  std::array<std::array<Row, kReasons>, kCollectives> rows_;
};

}  // namespace hetccl::mpi
