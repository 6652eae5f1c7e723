// NCCL as a table that writes down its calls, for one rank. Nothing moves.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ccl/nccl/nccl_library.h"
#include "ccl/nccl/tuner_plugin.h"

namespace hetccl::fake {

/// Thread-safe. Pointers are written as offsets from `base`.
class FakeNccl {
 public:
  const std::byte* base = nullptr;
  std::function<int()> on_init = [] { return ccl::nccl::kSuccess; };
  int async_outcome = ccl::nccl::kSuccess;
  int send_outcome = ccl::nccl::kSuccess;
  int version_code = 22'800;
  int min_blocks = 0, max_blocks = 0;  ///< that the last init with a config asked for
  std::function<void()> on_abort;      ///< once calls do not wait any more
  /// The number of channels that the last collective was asked to take; 0 if none. The fake can
  /// only do ring, simple, with any number of channels.
  int channels = 0;
  bool registers = true;            ///< memory; as NCCL does not where NCCL_LOCAL_REGISTER=0 is set
  std::atomic<bool> blocks{false};  ///< all-reduces and sends wait for an abort, as for lost ranks

  /// Returns the calls since the last `take`.
  std::vector<std::string> take() {
    std::lock_guard lock(mutex_);
    return std::exchange(calls_, {});
  }

  std::shared_ptr<ccl::nccl::Api> api() {
    auto api = std::make_shared<ccl::nccl::Api>();
    api->name = "nccl";
    api->version = "2.28.0";
    api->version_code = version_code;
    api->error_text = [](int) { return "an error"; };
    api->last_error = [](void*) { return "in words"; };
    api->unique_id = [](ccl::UniqueId* id) { return id->bytes[0] = 1, 0; };
    api->init = [this](void** comm, int, ccl::UniqueId, int) {
      const int outcome = on_init();
      if (outcome == ccl::nccl::kSuccess) *comm = this;
      return outcome;
    };
    api->init_with = [this, init = api->init](void** comm, int n_ranks, ccl::UniqueId id, int rank,
                                              const ccl::nccl::CommConfig* config) {
      min_blocks = config->min_ctas;
      max_blocks = config->max_ctas;
      return init(comm, n_ranks, id, rank);
    };
    api->destroy = [this](void*) { return note("destroy"); };
    api->abort = [this](void*) {
      const int outcome = note("abort");
      blocks = false;
      if (on_abort) on_abort();
      return outcome;
    };
    api->async_error = [this](void*, int* outcome) { return *outcome = async_outcome, 0; };
    api->group_start = [this] { return note("group {"); };
    api->group_end = [this] { return note("}"); };
    add_collectives(*api);
    return api;
  }

 private:
  void add_collectives(ccl::nccl::Api& api) {
    api.all_reduce = [this](const void* s, void* r, size_t n, int t, int op, void*, void*) {
      const int outcome = note("all_reduce", {at(s), at(r), num(n), num(t), num(op)});
      while (blocks) std::this_thread::yield();
      return outcome;
    };
    api.reduce_scatter = [this](const void* s, void* r, size_t n, int t, int op, void*, void*) {
      return note("reduce_scatter", {at(s), at(r), num(n), num(t), num(op)});
    };
    api.reduce = [this](const void* s, void* r, size_t n, int t, int op, int root, void*, void*) {
      return note("reduce", {at(s), at(r), num(n), num(t), num(op), num(root)});
    };
    api.broadcast = [this](const void* s, void* r, size_t n, int t, int root, void*, void*) {
      return note("broadcast", {at(s), at(r), num(n), num(t), num(root)});
    };
    api.all_gather = [this](const void* s, void* r, size_t n, int t, void*, void*) {
      return note("all_gather", {at(s), at(r), num(n), num(t)});
    };
    api.send = [this](const void* s, size_t n, int t, int peer, void*, void*) {
      note("send", {at(s), num(n), num(t), num(peer)});
      while (blocks) std::this_thread::yield();
      return send_outcome;
    };
    api.recv = [this](void* r, size_t n, int t, int peer, void*, void*) {
      return note("recv", {at(r), num(n), num(t), num(peer)});
    };
    api.create_premul_sum = [this](int* op, void*, int t, int residence, void*) {
      *op = 5 + made_++;
      return note("create_op", {num(t), num(residence)});
    };
    api.register_memory = [this](void*, void* memory, size_t bytes, void** handle) {
      if (registers) *handle = memory;
      return note("register", {at(memory), num(bytes)});
    };
    api.deregister_memory = [this](void*, void* handle) {
      return note("deregister", {at(handle)});
    };
    api.destroy_op = [this](int op, void*) { return note("destroy_op", {num(op)}); };
  }

  // Asks the tuner, as NCCL does for each of its collectives.
  void ask(const std::string& call) {
    static const std::map<std::string, int> kFunctions = {{"broadcast", 0},
                                                          {"reduce", 1},
                                                          {"all_gather", 2},
                                                          {"reduce_scatter", 3},
                                                          {"all_reduce", 4}};
    const auto function = kFunctions.find(call);
    if (function == kFunctions.end()) return;
    std::array<float, 21> costs{};
    costs.fill(nccl_tuner::kImpossible);
    costs[Tactic::kRing * Tactic::kProtocols + Tactic::kSimple] = 1;
    channels = 0;
    ccl::nccl::tuner::choose_v3(nullptr, function->second, 64, 1,
                                reinterpret_cast<float**>(costs.data()), Tactic::kAlgorithms,
                                Tactic::kProtocols, &channels);
  }
  int note(const char* call, const std::vector<std::string>& arguments = {}) {
    ask(call);
    std::string text = call;
    for (const auto& argument : arguments) text += " " + argument;
    std::lock_guard lock(mutex_);
    calls_.push_back(std::move(text));
    return ccl::nccl::kSuccess;
  }
  [[nodiscard]] std::string at(const void* pointer) const {
    return pointer == nullptr ? "null"
                              : "+" + std::to_string(static_cast<const std::byte*>(pointer) - base);
  }
  template <typename Number>
  static std::string num(Number number) {
    return std::to_string(number);
  }

  std::mutex mutex_;
  std::vector<std::string> calls_;
  int made_ = 0;
};

/// Host memory, and streams that are always empty.
class FakeWorkspace : public ccl::Workspace {
 public:
  void make_current() override {}
  Result<void*> allocate(size_t bytes) override { return ::operator new(bytes); }
  void free(void* memory) override { ::operator delete(memory); }
  Result<void*> acquire_stream() override { return static_cast<void*>(this); }
  void release_stream(void* /*stream*/) override {}
  bool drain(void* /*stream*/, const std::function<bool()>& give_up) override {
    while (stuck && !give_up()) std::this_thread::yield();
    return !stuck;
  }
  [[nodiscard]] std::string architecture() const override { return gpu; }
  std::atomic<bool> stuck{false};
  std::string gpu = "sm_90";
};

}  // namespace hetccl::fake
