// The members of a communicator, and what they know of each other: the control plane, the cards,
// the measurements, departures, and the cause of a failure. Lives as long as the communicator, and
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

/// `join`, `introduce`, `exchange` and `share` by the thread that opens, in this order, and
/// `give_up` where it does not succeed; the rest is thread-safe.
class Membership {
 public:
  /// The context outlives it.
  explicit Membership(Context& context);

  /// Takes a place that a split has found.
  void take_seat(int rank, int n_ranks) {
    rank_.store(rank, std::memory_order_relaxed);
    n_ranks_.store(n_ranks, std::memory_order_relaxed);
  }
  /// Blocks until all ranks have joined. The caller sets the callbacks of `join` only.
  Status join(const bootstrap::UniqueId& id, bootstrap::JoinOptions join);
  /// The ranks tell each other their cards. This one is on `device`, whose clusters `library`
  /// serves, and can share `window_bytes` with another.
  Status introduce(const device::Device& device, const ccl::Library& library, size_t window_bytes);
  /// Tells all ranks `mine`. Returns what each rank told, by rank.
  Result<std::vector<std::string>> exchange(std::string_view mine);
  /// All ranks learn what each of them has measured.
  Status share(const std::vector<topology::Measurement>& mine);
  /// Closes a communicator that could not be opened: tells the ranks that wait for this one why it
  /// does not come. Returns the cause that all ranks are told.
  Status give_up(Status cause);

  /// -1 and 0 while a split has not found them.
  [[nodiscard]] int rank() const { return rank_.load(std::memory_order_relaxed); }
  [[nodiscard]] int n_ranks() const { return n_ranks_.load(std::memory_order_relaxed); }
  [[nodiscard]] uint64_t number() const { return number_; }
  [[nodiscard]] Verdict& verdict() { return verdict_; }
  [[nodiscard]] exec::Departures& departures() { return departures_; }
  [[nodiscard]] bool joined() const { return session_ != nullptr; }
  // Once it has joined.
  [[nodiscard]] bootstrap::Session& session() const { return *session_; }
  // Once it is introduced.
  [[nodiscard]] const Introduction& introduction() const { return *introduction_; }
  [[nodiscard]] const topology::Topology& topology() const { return introduction_->topology; }
  [[nodiscard]] const topology::RankInfo& info(int rank) const {
    return topology().infos()[static_cast<size_t>(rank)];
  }
  /// This rank's.
  [[nodiscard]] const topology::Cluster& cluster() const {
    return topology().clusters()[static_cast<size_t>(topology().cluster_of(rank()))];
  }
  // Once ranks have shared what they measured.
  [[nodiscard]] const std::vector<topology::Measurement>& measured() const { return measured_; }
  [[nodiscard]] const std::string& topology_json() const;

 private:
  Context& context_;
  std::atomic<int> rank_, n_ranks_;
  const uint64_t number_;  // of this communicator in its process
  Verdict verdict_;
  exec::Departures departures_;
  std::unique_ptr<bootstrap::Session> session_;
  std::shared_ptr<const Introduction> introduction_;
  std::vector<topology::Measurement> measured_;  // by all ranks
  mutable std::once_flag topology_text_made_;
  mutable std::string topology_text_;
};

}  // namespace hetccl::comm
