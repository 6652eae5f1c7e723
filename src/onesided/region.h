// Memory that an endpoint lets its peers put to and get from. Region numbers are never reused, so a
// late peer gets an error instead of other data.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"

namespace hetccl::onesided {

/// Rights of peers.
enum Access : uint32_t { kGet = 1U << 0, kPut = 1U << 1 };

struct Region {
  uint64_t id = 0;
  std::byte* data = nullptr;
  size_t bytes = 0;
  bool on_device = false;   ///< hosts and channels cannot access it
  bool registered = false;  ///< registered with the transports, as long as `holds` live
  std::vector<std::shared_ptr<const void>> holds;
  uint32_t access = 0;
  std::string label;  ///< peers find the region by it
  std::atomic<int> uses{0};
};

/// Memory within a region.
struct Place {
  std::byte* data = nullptr;
  bool on_device = false;
  bool registered = false;
  /// Whether a channel can move it without a copy. A channel with `reaches_device` needs device
  /// memory to be registered.
  [[nodiscard]] bool is_reached(bool reaches_device) const {
    return !on_device || (registered && reaches_device);
  }
};

/// One use of a region, while this lives. A region's memory is free once it has no uses.
class Use {
 public:
  Use() = default;
  explicit Use(std::shared_ptr<Region> region) : region_(std::move(region)) { ++region_->uses; }
  Use(Use&& other) noexcept : region_(std::move(other.region_)) {}
  Use& operator=(Use&& other) noexcept {
    std::swap(region_, other.region_);
    return *this;
  }
  ~Use() {
    if (region_) --region_->uses;
  }
  [[nodiscard]] const Region* operator->() const { return region_.get(); }
  [[nodiscard]] Place at(uint64_t offset) const {
    return {region_->data + offset, region_->on_device, region_->registered};
  }
  [[nodiscard]] bool is_of(const Region& region) const { return region_.get() == &region; }

 private:
  std::shared_ptr<Region> region_;
};

/// Whether one of them is of `region`.
[[nodiscard]] inline bool are_of(const std::vector<Use>& uses, const Region& region) {
  return std::any_of(uses.begin(), uses.end(), [&](const Use& one) { return one.is_of(region); });
}

/// An endpoint's regions. Thread-safe.
class Regions {
 public:
  Regions();
  /// Adds a region and returns its number. InvalidArgument if it is empty or wraps around.
  Result<uint64_t> add(std::shared_ptr<Region> region);
  /// Removes a region: no new use finds it. InvalidArgument if there is none. The memory is free
  /// once the region has no uses.
  Result<std::shared_ptr<Region>> remove(uint64_t id);
  /// Takes a region into use. InvalidArgument if it is gone, if [offset, offset + bytes) is not
  /// inside it, or if it allows none of `access` (0: this endpoint's own use).
  Result<Use> use(uint64_t id, uint64_t offset, uint64_t bytes, uint32_t access) const;
  [[nodiscard]] std::vector<std::shared_ptr<const Region>> all() const;

 private:
  mutable std::mutex mutex_;
  uint64_t next_;
  std::map<uint64_t, std::shared_ptr<Region>> regions_;
};

}  // namespace hetccl::onesided
