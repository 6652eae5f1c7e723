#include "transport/verbs/registry.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace hetccl::transport::verbs {
namespace {

constexpr unsigned kAccess = abi::kLocalWrite | abi::kRemoteWrite | abi::kRemoteRead;

}  // namespace

class Registry::Handle final : public Registration {
 public:
  Handle(std::shared_ptr<Registry> registry, Piece piece)
      : registry_(std::move(registry)), piece_(std::move(piece)) {}
  ~Handle() override { registry_->remove(piece_); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

 private:
  const std::shared_ptr<Registry> registry_;
  const Piece piece_;
};

Result<std::unique_ptr<Registration>> Registry::add(const Memory& memory) {
  std::vector<Region> regions;
  for (const auto& device : devices_) {
    HETCCL_ASSIGN(Region region, device->register_memory(memory, kAccess));
    regions.push_back(std::move(region));
  }
  auto piece = std::make_shared<const Registered>(memory, std::move(regions));
  const std::lock_guard lock(mutex_);
  all_.push_back(piece);
  know(piece);
  return std::unique_ptr<Registration>(
      std::make_unique<Handle>(shared_from_this(), std::move(piece)));
}

// Others that it overlaps are hidden: of memory that was freed, or that several users registered.
void Registry::know(const Piece& piece) {
  std::erase_if(known_, [&](const auto& other) {
    return other.second->begin() < piece->end() && piece->begin() < other.second->end();
  });
  known_[piece->begin()] = piece;
}

void Registry::remove(const Piece& piece) {
  const std::lock_guard lock(mutex_);
  std::erase(all_, piece);
  const auto known = known_.find(piece->begin());
  if (known == known_.end() || known->second != piece) return;
  known_.clear();
  for (const Piece& one : all_) know(one);
}

Piece Registry::find(const std::byte* at) const {
  const std::lock_guard lock(mutex_);
  const auto after = known_.upper_bound(at);
  if (after == known_.begin()) return nullptr;
  const Piece& before = std::prev(after)->second;
  return at < before->end() ? before : nullptr;
}

bool Registry::has_device_memory() const {
  const std::lock_guard lock(mutex_);
  return std::any_of(all_.begin(), all_.end(), [](const Piece& one) { return one->on_device(); });
}

size_t Registry::number_of(const Device& device) const {
  const auto found = std::find_if(devices_.begin(), devices_.end(),
                                  [&](const auto& one) { return one.get() == &device; });
  return static_cast<size_t>(found - devices_.begin());
}

}  // namespace hetccl::transport::verbs
