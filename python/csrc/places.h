/// Meeting places for the ranks of a process group that torch makes by different calls.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

namespace hetccl::torch_backend {

/// A DeviceMesh makes its groups by split_group on ranks with a `device_id`, and by new_group on
/// ranks without one. The two calls name a group differently, so its ranks meet under the list of
/// its members. Thread-safe.
class Places {
 public:
  /// `store` is the store of the group whose ranks make other groups: the default group.
  explicit Places(c10::intrusive_ptr<c10d::Store> store);

  /// The store for the next group of exactly these ranks. All members make their groups in the same
  /// order, so their counts agree.
  [[nodiscard]] c10::intrusive_ptr<c10d::Store> enter(const std::vector<int64_t>& global_ranks);

 private:
  const c10::intrusive_ptr<c10d::Store> store_;
  std::mutex mutex_;
  std::map<std::vector<int64_t>, uint64_t> entered_;  ///< number of groups made, by members
};

}  // namespace hetccl::torch_backend
