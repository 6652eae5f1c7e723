// An id of the vendor's library, which rank 0 makes for a communicator of one vendor.
#pragma once

#include "nccl/abi.h"
#include "nccl/outcome.h"

namespace hetccl::nccl {

/// The library is told to make one before it is known whether one is needed: it starts then, while
/// other ranks are still on their way. What is not used is kept for this process's next
/// communicator, since the library's thread behind it waits for its ranks for ever. By one thread.
class VendorId {
 public:
  VendorId() = default;
  ~VendorId();
  VendorId(const VendorId&) = delete;
  VendorId& operator=(const VendorId&) = delete;

  /// Takes a kept one, or has the library make one.
  void make();
  /// Of `make`.
  [[nodiscard]] const Outcome& outcome() const { return outcome_; }
  /// Uses it up: once.
  ncclUniqueId use() {
    is_unused_ = false;
    return id_;
  }

 private:
  ncclUniqueId id_{};
  Outcome outcome_;
  bool is_unused_ = false;
};

}  // namespace hetccl::nccl
