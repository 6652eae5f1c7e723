/// Where the ranks of a process group meet when torch takes them there by different calls.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

namespace hetccl::torch_backend {

/// A DeviceMesh makes its groups by split_group on ranks that have a `device_id`, and by new_group
/// on ranks that have none. The two name a group differently, so its ranks meet under its members
/// instead. Thread-safe.
class Places {
 public:
  /// `store` is that of the group whose ranks make others: the default group.
  explicit Places(c10::intrusive_ptr<c10d::Store> store);

  /// The store of the next group of exactly these ranks. Its members make their groups in one
  /// order, so they all count alike.
  [[nodiscard]] c10::intrusive_ptr<c10d::Store> enter(const std::vector<int64_t>& global_ranks);

 private:
  const c10::intrusive_ptr<c10d::Store> store_;
  std::mutex mutex_;
  std::map<std::vector<int64_t>, uint64_t> entered_;  ///< groups made so far, by members
};

}  // namespace hetccl::torch_backend
