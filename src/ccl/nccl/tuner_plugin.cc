#include "ccl/nccl/tuner_plugin.h"

#include <dlfcn.h>

#include <bit>
#include <cstdlib>
#include <mutex>

namespace hetccl::ccl::nccl {
namespace {

// constinit avoids a guard at every access.
constinit thread_local const ScopedTactic* current = nullptr;

bool is_call(int function) {
  return function >= 0 && function < static_cast<int>(kLibraryCalls);
}

// Returns whether NCCL would find a tuner by its default name.
bool has_default_tuner() {
  void* const library = dlopen("libnccl-tuner.so", RTLD_NOW | RTLD_LOCAL);
  if (library != nullptr) dlclose(library);
  return library != nullptr;
}

}  // namespace

void offer_tuner() {
  static std::once_flag offered;
  std::call_once(offered, [] {
    Dl_info self{};
    const bool known = dladdr(reinterpret_cast<const void*>(&offer_tuner), &self) != 0;
    if (known && !has_default_tuner()) setenv("NCCL_TUNER_PLUGIN", self.dli_fname, 0);
  });
}

ScopedTactic::ScopedTactic(const Tactic& tactic, Tactics& possible)
    : tactic_(tactic), possible_(possible) {
  current = this;
}

ScopedTactic::~ScopedTactic() {
  current = nullptr;
}

void ScopedTactic::answer(int function, const CostTable& table, int* channels) const {
  if (!is_call(function)) return;
  int algorithm = -1, protocol = -1;  // NCCL's choice
  table.for_each_possible([&](int a, int p) {
    const float cost = table.cost(a, p);
    possible_.add(static_cast<LibraryCall>(function), a, p);
    possible_.add_costs(std::bit_cast<uint32_t>(cost));
    if (algorithm < 0 || cost < table.cost(algorithm, protocol)) algorithm = a, protocol = p;
  });
  if (tactic_.algorithm > 0) {
    algorithm = tactic_.algorithm - 1;
    if (!table.possible(algorithm, tactic_.protocol - 1)) return;
    table.take(algorithm, tactic_.protocol - 1);
  }
  if (tactic_.channels > 0 && takes_channels(algorithm)) *channels = tactic_.channels;
}

namespace tuner {

int init(size_t /*n_ranks*/, size_t /*n_nodes*/, nccl_tuner::LogFunction /*log*/, void** context) {
  *context = nullptr;  // the only state is the thread's ScopedTactic
  return nccl_tuner::kSuccess;
}

int init_v5(void** context, uint64_t /*communicator*/, size_t n_ranks, size_t n_nodes,
            nccl_tuner::LogFunction log, nccl_tuner::NvlDomainInfo* /*domains*/,
            nccl_tuner::TunerConstants* /*constants*/) {
  return init(n_ranks, n_nodes, log, context);
}

int choose_v3(void* /*context*/, int function, size_t /*bytes*/, int /*pipelined*/, float** costs,
              int n_algorithms, int n_protocols, int* channels) {
  if (current != nullptr && costs != nullptr)
    current->answer(function, {costs, n_algorithms, n_protocols}, channels);
  return nccl_tuner::kSuccess;
}

int choose_v4(void* context, int function, size_t bytes, int pipelined, float** costs,
              int n_algorithms, int n_protocols, int /*registered*/, int* channels) {
  return choose_v3(context, function, bytes, pipelined, costs, n_algorithms, n_protocols, channels);
}

int finish(void* /*context*/) {
  return nccl_tuner::kSuccess;
}

}  // namespace tuner
}  // namespace hetccl::ccl::nccl
