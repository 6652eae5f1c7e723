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

/// One use of a region, while this or a copy lives. A region's memory is free once it has no uses.
class Use {
 public:
  Use() = default;
  explicit Use(std::shared_ptr<Region> region)
      : hold_(std::make_shared<const Hold>(std::move(region))) {}
  /// Null for a default one.
  [[nodiscard]] const Region* region() const { return hold_ ? hold_->region.get() : nullptr; }
  [[nodiscard]] Place at(uint64_t offset) const {
    return {region()->data + offset, region()->on_device, region()->registered};
  }
  [[nodiscard]] bool is_of(const Region& region) const { return this->region() == &region; }

 private:
  struct Hold {
    explicit Hold(std::shared_ptr<Region> held) : region(std::move(held)) { ++region->uses; }
    ~Hold() { --region->uses; }
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;
    const std::shared_ptr<Region> region;
  };
  std::shared_ptr<const Hold> hold_;
};

/// Adds `use`, unless the last one is of the same region.
inline void add(std::vector<Use>& uses, Use use) {
  if (uses.empty() || uses.back().region() != use.region()) uses.push_back(std::move(use));
}

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

  /// Takes many pieces into use; those of one region that follow each other share a use. Regions
  /// are locked while it lives. Not thread-safe.
  class Lookup {
   public:
    explicit Lookup(const Regions& regions) : regions_(regions), lock_(regions.mutex_) {}
    /// As Regions::use.
    Result<Use> use(uint64_t id, uint64_t offset, uint64_t bytes, uint32_t access);

   private:
    const Regions& regions_;
    const std::lock_guard<std::mutex> lock_;
    Use last_;
  };

 private:
  mutable std::mutex mutex_;
  uint64_t next_;
  std::map<uint64_t, std::shared_ptr<Region>> regions_;
};

}  // namespace hetccl::onesided
