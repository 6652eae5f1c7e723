// Counts how many of the program's calls hetccl and the MPI have served, and why. Always counts,
// which costs little; prints at MPI_Finalize with HETCCL_MPI_SUMMARY=1.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>

#include "mpi/call.h"

namespace hetccl::mpi {

/// Reason why the MPI serves a call; `Hetccl` if hetccl serves it.
enum class Reason : uint8_t {
  Hetccl,        ///< no reason: hetccl serves it
  Rule,          ///< a rule chose the MPI
  Empty,         ///< nothing to move, or one rank
  Communicator,  ///< between two groups, or with processes of another job
  Operator,      ///< an operator or a type that hetccl does not compute
  Gaps,          ///< a datatype with gaps
  NotYet,        ///< the first nonblocking calls of a kind: ranks agree on it in the next blocking
                 ///< call
  InPlace,       ///< an all-to-all in place
  Concurrent,    ///< another thread is in a collective on the communicator
  NoEndpoint,    ///< hetccl could not connect the ranks
  Leaders,       ///< a rule chose leaders of nodes (Alpha)
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
