// A cluster's library whose abort is late, as NCCL's is while a call waits inside it: it is asked
// for at once, and entered when the test says.
#pragma once

#include <atomic>
#include <memory>
#include <utility>

#include "ccl/ccl.h"

namespace hetccl::fake {

class LateAbort final : public ccl::Communicator {
 public:
  explicit LateAbort(std::unique_ptr<ccl::Communicator> real) : real_(std::move(real)) {}

  /// What `abort` left to be done.
  void enter_abort() {
    real_->abort();
    entered_.store(true);
  }

  void number_calls(uint64_t number) override { real_->number_calls(number); }
  Status all_reduce(const void* send, void* recv, size_t count, DataType type, const Reducer& how,
                    void* stream) override {
    return real_->all_reduce(send, recv, count, type, how, stream);
  }
  Status reduce(std::span<const ccl::Shard> shards, DataType type, const Reducer& how,
                void* stream) override {
    return real_->reduce(shards, type, how, stream);
  }
  Status broadcast(std::span<const ccl::Shard> shards, DataType type, void* stream) override {
    return real_->broadcast(shards, type, stream);
  }
  Status exchange(std::span<const ccl::Transfer> transfers, DataType type, void* stream) override {
    return real_->exchange(transfers, type, stream);
  }
  Status barrier(void* stream) override { return real_->barrier(stream); }
  [[nodiscard]] Status async_error() const override {
    return asked_ ? error(Code::Aborted, "the cluster's communicator was aborted")
                  : real_->async_error();
  }
  [[nodiscard]] std::optional<ccl::Disagreement> disagreement() const override {
    return real_->disagreement();
  }
  void abort() override { asked_.store(true); }
  [[nodiscard]] bool abort_has_begun() override { return entered_; }
  [[nodiscard]] ShmSource* shm_source() override { return real_->shm_source(); }

 private:
  const std::unique_ptr<ccl::Communicator> real_;
  std::atomic<bool> asked_{false}, entered_{false};
};

}  // namespace hetccl::fake
