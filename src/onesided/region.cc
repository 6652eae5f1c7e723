#include "onesided/region.h"

#include <cinttypes>

#include "net/auth.h"

namespace hetccl::onesided {

// Starts at a random number, so that a region number of another endpoint is most likely unknown
// here, and a mix-up is found.
Regions::Regions() {
  uint32_t mark = 0;
  net::random_bytes(&mark, sizeof mark);
  next_ = (uint64_t{mark} & 0x7fffffffU) << 32U | 1U;
}

Result<uint64_t> Regions::add(std::shared_ptr<Region> region) {
  const auto begin = reinterpret_cast<uintptr_t>(region->data);
  if (region->data == nullptr) return error(ErrorCode::InvalidArgument, "data is null");
  if (region->bytes == 0)
    return error(ErrorCode::InvalidArgument, "bytes is 0: it must be at least 1");
  if (region->bytes > UINTPTR_MAX - begin) {
    return error(ErrorCode::InvalidArgument, "%zu bytes at %p wrap around", region->bytes,
                 static_cast<void*>(region->data));
  }
  const std::lock_guard lock(mutex_);
  const uint64_t id = region->id = next_++;
  regions_.emplace(id, std::move(region));
  return id;
}

Result<std::shared_ptr<Region>> Regions::remove(uint64_t id) {
  const std::lock_guard lock(mutex_);
  auto found = regions_.extract(id);
  if (found.empty()) {
    return error(ErrorCode::InvalidArgument, "region %" PRIx64 " is not registered", id);
  }
  return std::move(found.mapped());
}

Result<Use> Regions::use(uint64_t id, uint64_t offset, uint64_t bytes, uint32_t access) const {
  return Lookup(*this).use(id, offset, bytes, access);
}

Result<Use> Regions::Lookup::use(uint64_t id, uint64_t offset, uint64_t bytes, uint32_t access) {
  if (last_.region() == nullptr || last_.region()->id != id) {
    const auto found = regions_.regions_.find(id);
    if (found == regions_.regions_.end()) {
      return error(ErrorCode::InvalidArgument,
                   "region %" PRIx64 " is not registered, or not any more", id);
    }
    last_ = Use(found->second);
  }
  const Region& region = *last_.region();
  if (offset > region.bytes || bytes > region.bytes - offset) {
    return error(ErrorCode::InvalidArgument,
                 "%" PRIu64 " bytes from byte %" PRIu64 " on lie outside region %" PRIx64
                 " of %zu bytes",
                 bytes, offset, id, region.bytes);
  }
  if ((region.access & access) != access) {
    return error(ErrorCode::InvalidArgument, "region %" PRIx64 " may not be %s by peers", id,
                 access == kPut ? "written" : "read");
  }
  return last_;
}

std::vector<std::shared_ptr<const Region>> Regions::all() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<const Region>> all;
  for (const auto& [id, region] : regions_) all.push_back(region);
  return all;
}

}  // namespace hetccl::onesided
