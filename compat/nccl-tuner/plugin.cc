// Tables that NCCL and RCCL look up in libnccl-tuner-hetccl.so.
#include <new>

#include "nccl-tuner/tuner.h"

namespace hetccl::nccl_tuner {
namespace {

constexpr const char* kName = "hetccl";

// Never fails a program: without a tuner NCCL's own choices are used.
int init(const Communicator& communicator, LogFunction log, void** context) {
  *context = new (std::nothrow) Tuner(communicator, log);
  return kSuccess;
}

int init_unnamed(size_t n_ranks, size_t n_nodes, LogFunction log, void** context) {
  return init({0, n_ranks, n_nodes}, log, context);
}

int init_named(void** context, uint64_t communicator, size_t n_ranks, size_t n_nodes,
               LogFunction log, NvlDomainInfo* /*domains*/, TunerConstants* /*constants*/) {
  return init({communicator, n_ranks, n_nodes}, log, context);
}

int destroy(void* context) {
  delete static_cast<Tuner*>(context);
  return kSuccess;
}

// Sets the chosen entry's cost to the lowest: NCCL takes that one.
int choose(void* context, int function, size_t bytes, float** costs, int n_algorithms,
           int n_protocols, int* channels) {
  auto* tuner = static_cast<Tuner*>(context);
  auto* table = reinterpret_cast<float*>(costs);
  if (tuner == nullptr || table == nullptr) return kSuccess;
  const plan::Resources chosen =
      tuner->choose(function, bytes, Costs(table, n_algorithms, n_protocols));
  if (chosen.tactic.algorithm == 0) return kSuccess;
  table[(chosen.tactic.algorithm - 1) * n_protocols + chosen.tactic.protocol - 1] = 0;
  if (chosen.tactic.channels > 0) *channels = chosen.tactic.channels;
  return kSuccess;
}

int choose_v2(void* context, int function, size_t bytes, int /*collnet*/, int /*nvls*/,
              int /*pipelined*/, int* algorithm, int* protocol, int* channels) {
  auto* tuner = static_cast<Tuner*>(context);
  if (tuner == nullptr) return kSuccess;
  const plan::Resources chosen = tuner->choose(function, bytes, Costs::unknown(function));
  if (chosen.tactic.algorithm == 0) return kSuccess;
  *algorithm = chosen.tactic.algorithm - 1;
  *protocol = chosen.tactic.protocol - 1;
  if (chosen.tactic.channels > 0) *channels = chosen.tactic.channels;
  return kSuccess;
}

int choose_v3(void* context, int function, size_t bytes, int /*pipelined*/, float** costs,
              int n_algorithms, int n_protocols, int* channels) {
  return choose(context, function, bytes, costs, n_algorithms, n_protocols, channels);
}

int choose_v4(void* context, int function, size_t bytes, int /*pipelined*/, float** costs,
              int n_algorithms, int n_protocols, int /*registered*/, int* channels) {
  return choose(context, function, bytes, costs, n_algorithms, n_protocols, channels);
}

}  // namespace
}  // namespace hetccl::nccl_tuner

extern "C" {

namespace tuner = hetccl::nccl_tuner;

[[gnu::visibility("default")]] extern const tuner::TunerV2 ncclTunerPlugin_v2 = {
    tuner::kName, tuner::init_unnamed, tuner::choose_v2, tuner::destroy};
[[gnu::visibility("default")]] extern const tuner::TunerV3 ncclTunerPlugin_v3 = {
    tuner::kName, tuner::init_unnamed, tuner::choose_v3, tuner::destroy};
[[gnu::visibility("default")]] extern const tuner::TunerV4 ncclTunerPlugin_v4 = {
    tuner::kName, tuner::init_unnamed, tuner::choose_v4, tuner::destroy};
[[gnu::visibility("default")]] extern const tuner::TunerV5 ncclTunerPlugin_v5 = {
    tuner::kName, tuner::init_named, tuner::choose_v4, tuner::destroy};
}
