/// A barrier for debugging: it moves no tensor, and names the ranks that have not come.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace hetccl::torch_backend {

/// Ranks meet in the torch Store; rank 0 decides for all who was in time. Not thread-safe.
class MonitoredBarrier {
 public:
  using Milliseconds = std::chrono::milliseconds;

  /// `session` is one for all ranks and no other group: the Store may hold keys of an earlier one.
  MonitoredBarrier(c10::intrusive_ptr<c10d::Store> store, int rank, int size, uint64_t session);

  /// Blocks until every rank has come. Throws DistBackendError where one has not within `timeout`:
  /// on every rank that came, with the first that is missing or, `name_all`, with all of them.
  void pass(Milliseconds timeout, bool name_all);

 private:
  [[nodiscard]] std::string key(uint64_t round, const std::string& name) const;
  [[nodiscard]] bool comes(const std::string& key, Milliseconds timeout);
  /// What rank 0 tells the others: empty when all have come.
  [[nodiscard]] std::string decide(uint64_t round, Milliseconds timeout, bool name_all);
  [[nodiscard]] std::string await_decision(uint64_t round, Milliseconds timeout);

  const c10::intrusive_ptr<c10d::Store> store_;
  const int rank_;
  const int size_;
  const uint64_t session_;
  uint64_t rounds_ = 0;
};

}  // namespace hetccl::torch_backend
