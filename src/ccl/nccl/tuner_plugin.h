// Tells NCCL and RCCL how to run a call. They ask a tuner plug-in, in the calling thread, before
// they enqueue. libhetccl.so is such a plug-in: it answers for hetccl's communicators and leaves
// the tables of others unchanged.
#pragma once

#include "base/tactic.h"
#include "ccl/nccl/cost_table.h"
#include "ccl/nccl/tuner_abi.h"

namespace hetccl::ccl::nccl {

/// Sets NCCL_TUNER_PLUGIN of this process, which children inherit, to libhetccl.so. Call before the
/// process's first NCCL communicator, because NCCL loads one plug-in for all. Keeps a value that is
/// already set, and a libnccl-tuner.so that NCCL finds by itself; replaces a tuner in a network
/// plug-in. No other thread may read the environment meanwhile.
void offer_tuner();

/// While it lives, NCCL collectives of this thread use `tactic` if they can. At most one may live
/// in a thread.
class ScopedTactic {
 public:
  /// Adds what NCCL can do to `possible`.
  ScopedTactic(const Tactic& tactic, Tactics& possible);
  ~ScopedTactic();
  ScopedTactic(const ScopedTactic&) = delete;
  ScopedTactic& operator=(const ScopedTactic&) = delete;

  void answer(int function, const CostTable& table, int* channels) const;

 private:
  const Tactic tactic_;
  Tactics& possible_;
};

/// The plug-in's functions, for its tables (capi/nccl_tuner.cc).
namespace tuner {

int init(size_t n_ranks, size_t n_nodes, nccl_tuner::LogFunction log, void** context);
int init_v5(void** context, uint64_t communicator, size_t n_ranks, size_t n_nodes,
            nccl_tuner::LogFunction log, nccl_tuner::NvlDomainInfo* domains,
            nccl_tuner::TunerConstants* constants);
int choose_v3(void* context, int function, size_t bytes, int pipelined, float** costs,
              int n_algorithms, int n_protocols, int* channels);
int choose_v4(void* context, int function, size_t bytes, int pipelined, float** costs,
              int n_algorithms, int n_protocols, int registered, int* channels);
int finish(void* context);

}  // namespace tuner
}  // namespace hetccl::ccl::nccl
