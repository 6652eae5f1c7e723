// A cluster's communicator that passes every call on to a real one. Fakes override some calls.
#pragma once

#include <memory>
#include <optional>
#include <utility>

#include "ccl/ccl.h"

namespace hetccl::fake {

class ForwardingCommunicator : public ccl::Communicator {
 public:
  explicit ForwardingCommunicator(std::unique_ptr<ccl::Communicator> real)
      : real_(std::move(real)) {}
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
  [[nodiscard]] Status async_error() const override { return real_->async_error(); }
  [[nodiscard]] std::optional<ccl::Disagreement> disagreement() const override {
    return real_->disagreement();
  }
  void abort() override { real_->abort(); }
  [[nodiscard]] bool abort_has_begun() override { return real_->abort_has_begun(); }
  [[nodiscard]] ShmSource* shm_source() override { return real_->shm_source(); }

 protected:
  const std::unique_ptr<ccl::Communicator> real_;
};

}  // namespace hetccl::fake
