#include "transport/verbs/registry.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace hetccl::transport::verbs {
namespace {

constexpr unsigned kAccess = abi::kLocalWrite | abi::kRemoteWrite | abi::kRemoteRead;

}  // namespace

Registered::Registered(std::shared_ptr<Registry> registry, const Memory& memory,
                       std::vector<Region> regions)
    : registry_(std::move(registry)), memory_(memory), regions_(std::move(regions)) {}

Registered::~Registered() {
  registry_->remove(*this);
}

Result<std::unique_ptr<Registration>> Registry::add(const Memory& memory) {
  std::vector<Region> regions;
  for (const auto& device : devices_) {
    HETCCL_ASSIGN(Region region, device->register_memory(memory, kAccess));
    regions.push_back(std::move(region));
  }
  auto made = std::make_unique<Registered>(shared_from_this(), memory, std::move(regions));
  const std::lock_guard lock(mutex_);
  // What overlaps it is gone: its user has freed it, and has not said so yet.
  std::erase_if(known_, [&](const auto& other) {
    return other.second->begin() < made->end() && made->begin() < other.second->end();
  });
  known_[made->begin()] = made.get();
  return std::unique_ptr<Registration>(std::move(made));
}

void Registry::remove(const Registered& registered) {
  const std::lock_guard lock(mutex_);
  const auto known = known_.find(registered.begin());
  if (known != known_.end() && known->second == &registered) known_.erase(known);
}

const Registered* Registry::find(const std::byte* at) const {
  const std::lock_guard lock(mutex_);
  const auto after = known_.upper_bound(at);
  if (after == known_.begin()) return nullptr;
  const Registered* const before = std::prev(after)->second;
  return at < before->end() ? before : nullptr;
}

size_t Registry::number_of(const Device& device) const {
  const auto found = std::find_if(devices_.begin(), devices_.end(),
                                  [&](const auto& one) { return one.get() == &device; });
  return static_cast<size_t>(found - devices_.begin());
}

}  // namespace hetccl::transport::verbs
