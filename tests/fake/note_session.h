// A fake session. A test decides the fate of the notes that its rank sends.
#pragma once

#include <atomic>
#include <vector>

#include "bootstrap/bootstrap.h"

namespace hetccl::fake {

class NoteSession : public bootstrap::Session {
 public:
  NoteSession(int rank, int n_ranks) : rank_(rank), n_ranks_(n_ranks) {}
  std::atomic<int> told{0};  ///< notes

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int n_ranks() const override { return n_ranks_; }
  [[nodiscard]] uint64_t communicator() const override { return 7; }
  [[nodiscard]] const std::vector<uint8_t>& secret() const override { return secret_; }
  Result<std::vector<std::vector<uint8_t>>> all_gather(const std::vector<uint8_t>& mine,
                                                       int64_t /*timeout_ms*/) override {
    return std::vector(static_cast<size_t>(n_ranks_), mine);
  }
  Status barrier(int64_t /*timeout_ms*/) override { return {}; }
  void report(const bootstrap::Failure& /*failure*/) override {}
  void report_stall(const bootstrap::Stall& /*stall*/) override {}
  void leave(uint64_t /*called*/) override {}

 private:
  const int rank_, n_ranks_;
  const std::vector<uint8_t> secret_;
};

}  // namespace hetccl::fake
