// How the ranks of a communicator meet before it is known which library serves them. The id that
// ncclGetUniqueId gives is one of hetccl's: whoever has made it runs the rendezvous.
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

/// What a rank tells the others of itself.
struct Affiliation {
  std::string vendor;   ///< "nccl", "rccl", "": the rank has no GPU library
  std::string cluster;  ///< HETCCL_CLUSTER
};
using Bytes = std::vector<uint8_t>;

/// Whether it can be an id of `make_id`: those of a vendor's own library begin in another way.
bool is_ours(const ncclUniqueId& id);
Result<ncclUniqueId> make_id();

/// A rank's place among those that have come. Thread-safe, but for exchanges: one at a time.
class Meeting {
 public:
  /// Blocks until all ranks have come and told of themselves, `cancel` is set, or
  /// HETCCL_INIT_TIMEOUT_MS (HETCCL_TIMEOUT_MS where that is not set) is over. `cancel` outlives
  /// it.
  static Result<std::unique_ptr<Meeting>> join(const ncclUniqueId& id, int n_ranks, int rank,
                                               const Cancel& cancel);
  ~Meeting();

  [[nodiscard]] int rank() const { return session_->rank(); }
  [[nodiscard]] int n_ranks() const { return session_->n_ranks(); }
  /// "nccl: 2, no GPU library: 1".
  [[nodiscard]] std::string describe() const;
  /// Whether one library of a vendor can serve all ranks.
  [[nodiscard]] bool has_one_vendor() const;

  /// Collective: rank 0's bytes, which only members can read, on every rank.
  Result<Bytes> share_secret(const Bytes& of_rank_0);

  /// Where the ranks of a child, as a split or shrink makes it, meet.
  struct Child {
    ncclUniqueId id;
    int n_ranks, rank;
  };
  /// Collective, as ncclCommSplit. Nothing: this rank has no color.
  Result<std::optional<Child>> split(int color, int key);
  /// Without the ranks of `excluded`, which do not call.
  Result<Child> shrink(std::span<const int> excluded);

 private:
  Meeting() = default;
  void hear(int from, std::span<const uint8_t> note);
  void fail(const Status& why);
  Result<ncclUniqueId> wait_for_id(int from, uint64_t key);
  Result<bootstrap::UniqueId> make_child_id();
  Result<std::vector<Bytes>> gather(const Bytes& mine);

  std::mutex mutex_;  // guards what follows
  std::condition_variable heard_;
  std::map<std::pair<int, uint64_t>, ncclUniqueId> ids_;  // by sender and the shrink's key
  Status failure_;

  std::map<std::vector<int>, uint64_t> shrinks_;  // by the ranks that stay: how many so far
  const Cancel* cancel_ = nullptr;
  int64_t timeout_ms_ = 0;
  std::vector<Affiliation> affiliations_;
  std::unique_ptr<bootstrap::Session> session_;  // the first to go: it calls `hear`
};

}  // namespace hetccl::nccl
