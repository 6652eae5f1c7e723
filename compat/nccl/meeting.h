// The rendezvous of a communicator's ranks, before they know which library serves them. The id of
// ncclGetUniqueId is one of hetccl's; the process that has made it runs the rendezvous.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/cancel.h"
#include "bootstrap/bootstrap.h"
#include "nccl/abi.h"

namespace hetccl::nccl {

/// Facts that each rank sends to the others.
struct Affiliation {
  std::string vendor;   ///< "nccl", "rccl", "": the rank has no GPU library
  std::string cluster;  ///< HETCCL_CLUSTER
};
using Bytes = std::vector<uint8_t>;

/// Whether `id` looks like one of `make_id`; ids of a vendor's library begin differently.
bool is_ours(const ncclUniqueId& id);
Result<ncclUniqueId> make_id();

/// A rank's membership in the rendezvous. Thread-safe, except that only one exchange runs at a
/// time.
class Meeting {
 public:
  /// Blocks until all ranks have joined and sent their affiliation, until `cancel` is set, or until
  /// HETCCL_INIT_TIMEOUT_MS (if not set, HETCCL_TIMEOUT_MS) has passed. `cancel` must outlive the
  /// meeting.
  static Result<std::unique_ptr<Meeting>> join(const ncclUniqueId& id, int n_ranks, int rank,
                                               const Cancel& cancel);
  ~Meeting();

  [[nodiscard]] int rank() const { return session_->rank(); }
  [[nodiscard]] int n_ranks() const { return session_->n_ranks(); }
  /// "nccl: 2, no GPU library: 1".
  [[nodiscard]] std::string describe() const;
  /// Whether one vendor's library can serve all ranks.
  [[nodiscard]] bool has_one_vendor() const;

  /// Collective. Returns rank 0's bytes on every rank; only members can read them in transit.
  Result<Bytes> share_secret(const Bytes& of_rank_0);

  /// Invitation to the communicator that a split or shrink makes.
  struct Child {
    ncclUniqueId id;
    int n_ranks, rank;
  };
  /// Collective, as ncclCommSplit. Returns nothing if this rank has no color.
  Result<std::optional<Child>> split(int color, int key);
  /// Called by all ranks except `excluded`.
  Result<Child> shrink(std::span<const int> excluded);

 private:
  Meeting() = default;
  void receive_note(int from, std::span<const uint8_t> note);
  void fail(const Status& why);
  Result<ncclUniqueId> wait_for_id(int from, uint64_t key);
  Result<bootstrap::UniqueId> make_child_id();
  Result<std::vector<Bytes>> gather(const Bytes& mine);

  std::mutex mutex_;  // guards the members below
  std::condition_variable heard_;
  std::map<std::pair<int, uint64_t>, ncclUniqueId> ids_;  // by sender and key of the shrink
  Status failure_;

  std::map<std::vector<int>, uint64_t> shrinks_;  // number of shrinks so far, by remaining ranks
  const Cancel* cancel_ = nullptr;
  int64_t timeout_ms_ = 0;
  std::vector<Affiliation> affiliations_;
  // The last member, so destroyed first: it calls `receive_note`.
  std::unique_ptr<bootstrap::Session> session_;
};

}  // namespace hetccl::nccl
