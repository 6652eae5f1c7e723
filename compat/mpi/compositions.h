// Algorithm::Alpha (paper 002, section III.B): a collective within each node, then between one
// leader of each node, then within nodes again, all by the MPI's own functions.
#pragma once

#include <vector>

#include "mpi/call.h"
#include "mpi/library.h"

namespace hetccl::mpi {

class Composition {
 public:
  /// Collective over `comm`. `node` is the number of this rank's node.
  Composition(Word comm, int node, const Library& library);
  ~Composition();
  Composition(const Composition&) = delete;
  Composition& operator=(const Composition&) = delete;

  /// Whether `collective` has a composition.
  static bool applies(Collective collective);
  /// Runs a blocking call and returns the MPI's error code. Operators must be predefined, hence
  /// commutative.
  int run(const MpiCall& call) const;

 private:
  struct NodeRank {
    int node;  // this rank's node, as a rank of the leaders
    int rank;  // this rank within its node
  };
  [[nodiscard]] bool leads() const { return leaders_ != 0; }
  int run_allreduce(const MpiCall& call) const;
  int run_reduce(const MpiCall& call) const;
  int run_bcast(const MpiCall& call) const;
  int run_barrier() const;

  const Library& library_;
  Word node_ = 0, leaders_ = 0;       // leaders_ is 0 on ranks that do not lead
  std::vector<NodeRank> node_ranks_;  // by rank of the communicator
  NodeRank mine_{};
};

}  // namespace hetccl::mpi
