#include "transport/verbs/registry.h"

#include <algorithm>
#include <utility>

namespace hetccl::transport::verbs {
namespace {

constexpr unsigned kAccess = abi::kLocalWrite | abi::kRemoteWrite | abi::kRemoteRead;

}  // namespace

class Registry::Handle final : public Registration {
 public:
  Handle(std::shared_ptr<Registry> registry, Piece piece)
      : registry_(std::move(registry)), piece_(std::move(piece)) {}
  ~Handle() override { registry_->map_.remove(piece_); }
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
  map_.add(piece);
  return std::unique_ptr<Registration>(
      std::make_unique<Handle>(shared_from_this(), std::move(piece)));
}

size_t Registry::number_of(const Device& device) const {
  const auto found = std::find_if(devices_.begin(), devices_.end(),
                                  [&](const auto& one) { return one.get() == &device; });
  return static_cast<size_t>(found - devices_.begin());
}

}  // namespace hetccl::transport::verbs
