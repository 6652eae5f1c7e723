// The members of a communicator, and what they know of each other: the control plane, cards,
// measurements, departures, and the cause of a failure. Lives as long as the communicator, and
// knows nothing of channels, plans or operations.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "bootstrap/bootstrap.h"
#include "comm/context.h"
#include "comm/introduction.h"
#include "comm/verdict.h"
#include "exec/departures.h"

namespace hetccl::comm {

/// The thread that opens the communicator calls `join`, `introduce`, `exchange` and `share`, in
/// this order, or `give_up` on failure. Everything else is thread-safe.
class Membership {
 public:
  /// The context must outlive it.
  explicit Membership(Context& context);

  /// Takes the rank and size that a split assigned.
  void take_seat(int rank, int n_ranks) {
    rank_.store(rank, std::memory_order_relaxed);
    n_ranks_.store(n_ranks, std::memory_order_relaxed);
  }
  /// Blocks until all ranks have joined. The caller only sets the callbacks of `join`.
  Status join(const bootstrap::UniqueId& id, bootstrap::JoinOptions join);
  /// Exchanges cards with all ranks. This one is on `device`, whose clusters `library` serves, and
  /// can share `window_bytes` with another.
  Status introduce(const device::Device& device, const ccl::Library& library, size_t window_bytes);
  /// Sends `mine` to all ranks. Returns each rank's text, by rank.
  Result<std::vector<std::string>> exchange(std::string_view mine);
  /// Shares each rank's measurements with all ranks.
  Status share(const std::vector<topology::Measurement>& mine);
  /// Closes a communicator that could not be opened, and tells the ranks that wait for this one.
  /// Returns the cause that all ranks are told.
  Status give_up(Status cause);

  /// Return -1 and 0 until a split has assigned rank and size.
  [[nodiscard]] int rank() const { return rank_.load(std::memory_order_relaxed); }
  [[nodiscard]] int n_ranks() const { return n_ranks_.load(std::memory_order_relaxed); }
  [[nodiscard]] uint64_t number() const { return number_; }
  [[nodiscard]] Verdict& verdict() { return verdict_; }
  [[nodiscard]] exec::Departures& departures() { return departures_; }
  [[nodiscard]] bool joined() const { return session_ != nullptr; }
  // Requires `join`.
  [[nodiscard]] bootstrap::Session& session() const { return *session_; }
  // Requires `introduce`.
  [[nodiscard]] const Introduction& introduction() const { return *introduction_; }
  [[nodiscard]] const topology::Topology& topology() const { return introduction_->topology; }
  [[nodiscard]] const topology::RankInfo& info(int rank) const {
    return topology().infos()[static_cast<size_t>(rank)];
  }
  /// Returns this rank's cluster.
  [[nodiscard]] const topology::Cluster& cluster() const {
    return topology().clusters()[static_cast<size_t>(topology().cluster_of(rank()))];
  }
  // Returns the measurements of all ranks. Requires `share`.
  [[nodiscard]] const std::vector<topology::Measurement>& measured() const { return measured_; }
  [[nodiscard]] const std::string& topology_json() const;

 private:
  Context& context_;
  std::atomic<int> rank_, n_ranks_;
  const uint64_t number_;  // counts this process's communicators
  Verdict verdict_;
  exec::Departures departures_;
  std::unique_ptr<bootstrap::Session> session_;
  std::shared_ptr<const Introduction> introduction_;
  std::vector<topology::Measurement> measured_;  // of all ranks
  mutable std::once_flag topology_text_made_;
  mutable std::string topology_text_;
};

}  // namespace hetccl::comm
