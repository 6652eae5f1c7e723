#include "hip/noncoherent.h"

#include <map>
#include <memory>
#include <mutex>

#include "core/hostile.h"
#include "hip/relaxed_capture.h"
#include "hip/shadow.h"

namespace forward {
namespace {

struct Allocation {
  std::unique_ptr<Shadow> shadow;
  std::size_t slot;
};

struct Allocations {
  std::mutex mutex;
  std::map<cuda::Address, Allocation> by_address;
};

Allocations& allocations() {
  static Allocations* instance = new Allocations;
  return *instance;
}

}  // namespace

bool is_noncoherent(unsigned flags) {
  return hostile(Hostile::kNonCoherent) && (flags & hipHostMallocCoherent) == 0;
}

hipError_t allocate_noncoherent(const cuda::Driver& driver, void** pointer, std::size_t bytes) {
  const RelaxedCapture relaxed(driver);
  hipError_t error = load_merge_kernel(driver);
  if (error != hipSuccess) return error;
  Allocation made{std::make_unique<Shadow>(driver), 0};
  error = made.shadow->create(bytes);
  if (error == hipSuccess) error = add_copies(made.shadow->copies(), &made.slot);
  if (error != hipSuccess) return error;
  *pointer = made.shadow->address();
  Allocations& state = allocations();
  const std::lock_guard<std::mutex> lock(state.mutex);
  state.by_address[cuda::address(*pointer)] = std::move(made);
  return hipSuccess;
}

bool free_noncoherent(const cuda::Driver& driver, void* pointer, hipError_t* error) {
  const RelaxedCapture relaxed(driver);
  Allocation freed;
  {
    Allocations& state = allocations();
    const std::lock_guard<std::mutex> lock(state.mutex);
    const auto found = state.by_address.find(cuda::address(pointer));
    if (found == state.by_address.end()) return false;
    freed = std::move(found->second);
    state.by_address.erase(found);
  }
  *error = remove_copies(driver, freed.slot);
  if (*error != hipSuccess) (void)freed.shadow.release();
  return true;
}

cuda::Address alias_distance(const void* pointer) {
  if (!hostile(Hostile::kNonCoherent)) return 0;
  Allocations& state = allocations();
  const std::lock_guard<std::mutex> lock(state.mutex);
  const auto next = state.by_address.upper_bound(cuda::address(pointer));
  if (next == state.by_address.begin()) return 0;
  const auto& [start, allocation] = *std::prev(next);
  const bool inside = cuda::address(pointer) - start < allocation.shadow->bytes();
  return inside ? allocation.shadow->alias() - start : 0;
}

void forget_noncoherent() {
  Allocations& state = allocations();
  const std::lock_guard<std::mutex> lock(state.mutex);
  for (auto& [start, allocation] : state.by_address) (void)allocation.shadow.release();
  state.by_address.clear();
  forget_merges();
}

}  // namespace forward
