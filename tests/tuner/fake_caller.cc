#include "tuner/fake_caller.h"

#include <dlfcn.h>
#include <doctest/doctest.h>

#include <cstdarg>
#include <cstdio>
#include <mutex>
#include <utility>

namespace hetccl::nccl_tuner {
namespace {

using enum Tactic::Algorithm;

std::mutex log_mutex;
std::vector<std::string> log_lines;

void log(int level, unsigned long subsystems, const char* file, int /*line*/, const char* format,
         ...) {
  char text[1024];
  va_list values;
  va_start(values, format);
  std::vsnprintf(text, sizeof text, format, values);
  va_end(values);
  if (subsystems != kLogTuning || file == nullptr) std::abort();
  const std::lock_guard lock(log_mutex);
  log_lines.push_back((level == kLogWarn ? "warn: " : "info: ") + std::string(text));
}

Chosen cheapest(const Table& table) {
  Chosen chosen;
  float least = 3.6e9F;
  for (int a = 0; a < Tactic::kAlgorithms; ++a) {
    for (int p = 0; p < Tactic::kProtocols; ++p) {
      const float cost = table[static_cast<size_t>(a)][static_cast<size_t>(p)];
      if (cost == kImpossible || cost < 0 || cost >= least) continue;
      least = cost;
      chosen = {a, p, 0};
    }
  }
  return chosen;
}

}  // namespace

Table usual_table() {
  Table table;
  for (auto& row : table) row.fill(kImpossible);
  table[kTree] = {50, 40, 60};
  table[kRing] = {70, 55, 45};
  table[kNvls] = {kImpossible, kImpossible, 90};
  return table;
}

FakeNccl::FakeNccl(int version)
    : library_(dlopen(TUNER_PLUGIN, RTLD_NOW | RTLD_LOCAL)), version_(version) {
  if (library_ == nullptr) FAIL(dlerror());
  void* symbol = find(("ncclTunerPlugin_v" + std::to_string(version)).c_str());
  REQUIRE(symbol != nullptr);
  if (version == 2) v2_ = static_cast<const TunerV2*>(symbol);
  if (version == 3) v3_ = static_cast<const TunerV3*>(symbol);
  if (version == 4) v4_ = static_cast<const TunerV4*>(symbol);
  if (version == 5) tuner_ = *static_cast<const TunerV5*>(symbol);
}

FakeNccl::~FakeNccl() {
  dlclose(library_);
}

void* FakeNccl::find(const char* symbol) const {
  return dlsym(library_, symbol);
}

void* FakeNccl::init(uint64_t communicator, size_t n_ranks, size_t n_nodes) const {
  void* context = nullptr;
  int result = 1;
  NvlDomainInfo domains{};
  TunerConstants constants{};
  if (v2_ != nullptr) result = v2_->init(n_ranks, n_nodes, log, &context);
  if (v3_ != nullptr) result = v3_->init(n_ranks, n_nodes, log, &context);
  if (v4_ != nullptr) result = v4_->init(n_ranks, n_nodes, log, &context);
  if (version_ == 5)
    result = tuner_.init(&context, communicator, n_ranks, n_nodes, log, &domains, &constants);
  if (result != kSuccess) std::abort();
  return context;
}

Chosen FakeNccl::call(void* context, int function, size_t bytes, const Table& given) const {
  Table table = given;
  auto** costs = reinterpret_cast<float**>(table.data());
  int channels = 0, result = 1;
  if (v2_ != nullptr) {
    Chosen chosen;
    result = v2_->get_coll_info(context, function, bytes, 0, 1, 1, &chosen.algorithm,
                                &chosen.protocol, &channels);
    if (chosen.algorithm < 0) chosen = cheapest(given);
    chosen.channels = channels;
    if (result != kSuccess) std::abort();
    return chosen;
  }
  const auto get = v4_ != nullptr ? v4_->get_coll_info : tuner_.get_coll_info;
  if (v3_ != nullptr) {
    result = v3_->get_coll_info(context, function, bytes, 1, costs, Tactic::kAlgorithms,
                                Tactic::kProtocols, &channels);
  } else {
    result = get(context, function, bytes, 1, costs, Tactic::kAlgorithms, Tactic::kProtocols, 0,
                 &channels);
  }
  if (result != kSuccess) std::abort();
  Chosen chosen = cheapest(table);
  chosen.channels = channels;
  return chosen;
}

void FakeNccl::destroy(void* context) const {
  int result = 1;
  if (v2_ != nullptr) result = v2_->destroy(context);
  if (v3_ != nullptr) result = v3_->destroy(context);
  if (v4_ != nullptr) result = v4_->destroy(context);
  if (version_ == 5) result = tuner_.finalize(context);
  if (result != kSuccess) std::abort();
}

std::vector<std::string> FakeNccl::take_log() {
  const std::lock_guard lock(log_mutex);
  return std::exchange(log_lines, {});
}

}  // namespace hetccl::nccl_tuner
