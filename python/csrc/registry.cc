#include "registry.h"

#include <utility>

#include "places.h"

namespace hetccl::torch_backend {

Registry::BackendPtr Registry::create(const c10d::DistributedBackendOptions& options,
                                      std::optional<c10::Device> preferred, const BackendPtr& world,
                                      const Wire& wire) {
  c10d::DistributedBackendOptions own = options;
  const std::shared_ptr<Places> places = world ? world->places() : nullptr;
  if (places != nullptr) own.store = places->enter(own.global_ranks_in_group);
  auto backend =
      c10::make_intrusive<HetcclBackend>(own, preferred, Origin{shared_from_this(), places, wire});
  backend->meet();
  add(backend);
  return backend;
}

void Registry::add(const BackendPtr& backend) {
  const std::lock_guard lock(mutex_);
  std::erase_if(backends_, [](const auto& weak) { return weak.expired(); });
  backends_.emplace_back(backend);
}

void Registry::close_all(std::chrono::milliseconds grace) {
  std::vector<c10::weak_intrusive_ptr<HetcclBackend>> backends;
  {
    const std::lock_guard lock(mutex_);
    backends.swap(backends_);
  }
  for (const auto& weak : backends) {
    if (const auto backend = weak.lock()) backend->shutdown_within(grace);
  }
}

}  // namespace hetccl::torch_backend
