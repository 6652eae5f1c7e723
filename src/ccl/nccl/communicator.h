// One NCCL communicator behind the seam: turns lists of shards into NCCL's calls.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <utility>

#include "base/clock.h"
#include "ccl/ccl.h"
#include "ccl/nccl/nccl_library.h"
#include "ccl/nccl/tuner_plugin.h"

namespace hetccl::ccl::nccl {

/// Returns the status of a finished call, in NCCL's words.
Status explain(const Api& api, int outcome, const char* call, void* comm);

/// A communicator's handle and memory. They end on a separate thread, because ending blocks.
class Handle {
 public:
  Handle(std::shared_ptr<const Api> api, std::shared_ptr<Workspace> workspace)
      : api_(std::move(api)), workspace_(std::move(workspace)) {}
  /// Aborts it unless it has ended.
  ~Handle();
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  [[nodiscard]] const Api& api() const { return *api_; }
  [[nodiscard]] void* comm() const { return comm_.load(std::memory_order_acquire); }
  [[nodiscard]] bool ending() const { return ending_.load(std::memory_order_acquire); }
  /// Held shared by calls and exclusively by `end`, except for an abort during a call that does not
  /// return.
  std::shared_mutex& mutex() { return mutex_; }
  /// Call for each NCCL call. Returns Aborted if the communicator has ended or is about to.
  Result<std::shared_lock<std::shared_mutex>> enter();
  /// Collective; blocks until all ranks have come. `config` may be null.
  Status open(const UniqueId& id, int n_ranks, int rank, const CommConfig* config);
  /// Returns a byte of device memory for barriers. Requires the mutex.
  [[nodiscard]] void* word() const { return word_; }
  /// Like `explain`, but waits for a call that continues in the background.
  Status check(int outcome, const char* call);
  /// The first call ends it, in order or by force. Blocks as long as NCCL does.
  void end(bool by_force);
  /// Takes over memory of the workspace, to free it with the communicator.
  void adopt(void* memory);
  void announce_end() { ending_.store(true, std::memory_order_release); }
  /// Returns whether NCCL knows of the abort: it was told, and has had time to note it.
  [[nodiscard]] bool end_has_begun() const;

 private:
  const std::shared_ptr<const Api> api_;
  const std::shared_ptr<Workspace> workspace_;
  std::atomic<void*> comm_{nullptr};
  void* word_ = nullptr;
  void* adopted_ = nullptr;
  std::mutex ends_;  // lock before `mutex_`
  std::shared_mutex mutex_;
  std::atomic<bool> ending_{false};
  std::atomic<TimePoint> known_at_{TimePoint::max()};  // when NCCL has noted the abort
};

/// Runs `Handle::end` on a separate thread, because it blocks. Sets `ended` (may be null) when
/// done. Returns false if no thread can be started.
bool start_ending(const std::shared_ptr<Handle>& handle, bool by_force,
                  const std::shared_ptr<std::atomic<bool>>& ended = nullptr);

class NcclCommunicator : public Communicator {
 public:
  NcclCommunicator(std::shared_ptr<Handle> handle, int n_ranks, int rank)
      : handle_(std::move(handle)), n_ranks_(n_ranks), rank_(rank) {}
  /// Waits a bounded time for NCCL to end; then the end continues in the background.
  ~NcclCommunicator() override;
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  void set_tactic(const Tactic& tactic) override { tactic_ = tactic; }
  [[nodiscard]] std::optional<Tactics> tactics() const override {
    return n_ranks_ > 1 ? std::optional(possible_) : std::nullopt;
  }
  Status all_reduce(const void* send, void* recv, size_t count, DataType type, const Reducer& how,
                    void* stream) override;
  Status reduce(std::span<const Shard> shards, DataType type, const Reducer& how,
                void* stream) override;
  Status broadcast(std::span<const Shard> shards, DataType type, void* stream) override;
  Status exchange(std::span<const Transfer> transfers, DataType type, void* stream) override;
  Status barrier(void* stream) override;
  Result<void*> register_memory(void* memory, size_t bytes) override;
  Status deregister_memory(void* registration) override;
  [[nodiscard]] Status async_error() const override;
  void abort() override;
  [[nodiscard]] bool abort_has_begun() override;
  [[nodiscard]] ShmSource* shm_source() override { return nullptr; }
  /// Takes over memory to free with the communicator. Call at most once.
  void adopt(void* memory) { handle_->adopt(memory); }
  [[nodiscard]] bool has(RedOp op) const { return has_operator(api(), op); }

 private:
  // The type and stream of NCCL's calls.
  struct Target {
    int type = 0;
    void* stream = nullptr;
  };
  [[nodiscard]] bool one_each(std::span<const Shard> shards) const;
  Status reduce_each(std::span<const Shard> shards, int op, const Target& target);
  Status broadcast_each(std::span<const Shard> shards, size_t per_element, const Target& target);
  Status deliver(std::span<const Shard> shards, size_t per_element, const Target& target);
  Status send(const void* data, size_t count, int peer, const Target& target);
  Status receive(void* data, size_t count, int peer, const Target& target);
  template <typename Body>
  Status with_operator(const Reducer& how, DataType type, Body&& body);
  template <typename Body>
  Status in_group(Body&& body);
  [[nodiscard]] const Api& api() const { return handle_->api(); }
  [[nodiscard]] void* comm() const { return handle_->comm(); }

  const std::shared_ptr<Handle> handle_;
  const int n_ranks_, rank_;
  Tactic tactic_;
  Tactics possible_;                   // union over the calls so far
  std::atomic<bool> to_abort_{false};  // no thread could be started for it
};

}  // namespace hetccl::ccl::nccl
