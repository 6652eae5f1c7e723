// Algorithm::Alpha (paper 002, section III.B): a collective within each node, then between one
// leader of each node, then within nodes again, all by the MPI's own functions.
#pragma once

#include <vector>

#include "mpi/call.h"
#include "mpi/library.h"

namespace hetccl::mpi {

class Composition {
 public:
  /// Collective over `comm`: `node` is the number of this rank's.
  Composition(Word comm, int node, const Library& library);
  ~Composition();
  Composition(const Composition&) = delete;
  Composition& operator=(const Composition&) = delete;

  /// Whether there is one for it.
  static bool applies(Collective collective);
  /// The MPI's error code. Blocking; operators that are predefined, and so commute.
  int run(const MpiCall& call) const;

 private:
  struct NodeRank {
    int node;  // among the leaders
    int rank;  // within its node
  };
  [[nodiscard]] bool leads() const { return leaders_ != 0; }
  int run_allreduce(const MpiCall& call) const;
  int run_reduce(const MpiCall& call) const;
  int run_bcast(const MpiCall& call) const;
  int run_barrier() const;

  const Library& library_;
  Word node_ = 0, leaders_ = 0;       // leaders_ is 0 on ranks that do not lead
  std::vector<NodeRank> node_ranks_;  // of each rank
  NodeRank mine_{};
};

}  // namespace hetccl::mpi
