// The kernels of one device, loaded.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "base/status.h"
#include "base/types.h"
#include "device/gpu/api.h"
#include "device/kernels/kernels.h"

namespace hetccl::device::gpu {

/// Returns an error "<what>: <the vendor's text>", or ok for 0.
Status check(const Api& api, int code, const char* what);

/// Immutable once loaded. Belongs to the context in which it was loaded.
class LoadedKernels {
 public:
  explicit LoadedKernels(const Api& api) : api_(api) {}
  /// Must run in the device's context.
  ~LoadedKernels();
  LoadedKernels(const LoadedKernels&) = delete;
  LoadedKernels& operator=(const LoadedKernels&) = delete;

  /// Loads all kernels, and everything that their first launches would load.
  Status load(const kernels::Images& images);
  [[nodiscard]] void* reduction(DataType type, RedOp op) const {
    return reductions_[static_cast<size_t>(type)][kernels::place_of(op)];
  }
  [[nodiscard]] void* encoded_reduction(DataType type, Format format) const {
    return encoded_[static_cast<size_t>(type)][static_cast<size_t>(format)];
  }
  /// Returns the kernel of batches with such reductions.
  [[nodiscard]] void* batch(DataType type, RedOp op) const {
    return batches_[static_cast<size_t>(kernels::kind_of(type, op))];
  }
  [[nodiscard]] void* copy_list() const { return copy_list_; }
  [[nodiscard]] void* wait_flag() const { return wait_flag_; }
  [[nodiscard]] void* write_flag() const { return write_flag_; }

 private:
  /// `images` must be the loaded ones.
  Result<void*> find(const kernels::Images& images, const std::string& name) const;

  const Api& api_;
  std::vector<void*> modules_;
  // By type and index of the operator; the last index is for no operator.
  std::array<std::array<void*, kernels::kOps.size() + 1>, 66> reductions_{};
  std::array<void*, 66> batches_{};                                   // by kind
  std::array<std::array<void*, kFormats.size() + 1>, 66> encoded_{};  // by type and format
  void* copy_list_ = nullptr;
  void* wait_flag_ = nullptr;
  void* write_flag_ = nullptr;
};

}  // namespace hetccl::device::gpu
