/// A barrier for debugging. It moves no tensors, and names the ranks that have not called it.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace hetccl::torch_backend {

/// Ranks meet in the torch Store; rank 0 decides for all which ranks were in time. Not thread-safe.
class MonitoredBarrier {
 public:
  using Milliseconds = std::chrono::milliseconds;

  /// `session` is the same on all ranks and different for every group: the Store may hold keys of
  /// an earlier group.
  MonitoredBarrier(c10::intrusive_ptr<c10d::Store> store, int rank, int size, uint64_t session);

  /// Blocks until every rank has called it. If a rank has not within `timeout`, throws
  /// DistBackendError on every rank that has, naming the first missing rank, or all of them with
  /// `name_all`.
  void pass(Milliseconds timeout, bool name_all);

 private:
  [[nodiscard]] std::string key(uint64_t round, const std::string& name) const;
  [[nodiscard]] bool comes(const std::string& key, Milliseconds timeout);
  /// Rank 0's decision for all ranks: the error text, or "" if all have come.
  [[nodiscard]] std::string decide(uint64_t round, Milliseconds timeout, bool name_all);
  [[nodiscard]] std::string await_decision(uint64_t round, Milliseconds timeout);

  const c10::intrusive_ptr<c10d::Store> store_;
  const int rank_;
  const int size_;
  const uint64_t session_;
  uint64_t rounds_ = 0;
};

}  // namespace hetccl::torch_backend
