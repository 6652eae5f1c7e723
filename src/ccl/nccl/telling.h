// Tells NCCL and RCCL how to run a call. They ask a tuner plug-in, in the thread that makes the
// call, before they enqueue it; libhetccl.so is such a plug-in for its own communicators, and
// leaves all others of the process alone.
#pragma once

#include "base/tactic.h"
#include "ccl/nccl/tuner_abi.h"

namespace hetccl::ccl::nccl {

/// Has libraries that this process starts from now on ask libhetccl.so, unless the user has chosen
/// a plug-in (NCCL_TUNER_PLUGIN). They read their environment, so that is where it is said.
void offer_tuner();

/// For as long as it lives, what its thread's calls ask for. At most one lives in a thread.
class Telling {
 public:
  /// What the library could have done is added to `possible`.
  Telling(const Tactic& tactic, Tactics& possible);
  ~Telling();
  Telling(const Telling&) = delete;
  Telling& operator=(const Telling&) = delete;

  /// What the library asks: takes a pair by making it cheapest in its table.
  void answer(int function, float* costs, int n_algorithms, int n_protocols, int* channels) const;

 private:
  const Tactic tactic_;
  Tactics& possible_;
};

/// The plug-in's functions, for its tables (capi/nccl_tuner.cc).
namespace tuner {
using namespace nccl_tuner;
int init(size_t n_ranks, size_t n_nodes, LogFunction log, void** context);
int init_v5(void** context, uint64_t communicator, size_t n_ranks, size_t n_nodes, LogFunction log,
            NvlDomainInfo* domains, TunerConstants* constants);
int choose_v3(void* context, int function, size_t bytes, int pipelined, float** costs,
              int n_algorithms, int n_protocols, int* channels);
int choose_v4(void* context, int function, size_t bytes, int pipelined, float** costs,
              int n_algorithms, int n_protocols, int registered, int* channels);
int finish(void* context);
}  // namespace tuner

}  // namespace hetccl::ccl::nccl
