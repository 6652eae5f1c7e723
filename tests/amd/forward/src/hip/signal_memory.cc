#include "hip/signal_memory.h"

#include <mutex>
#include <set>

#include "cuda/numbers.h"
#include "hip/errors.h"

namespace forward {
namespace {

constexpr std::size_t kSignalBytes = 8;

struct Signals {
  std::mutex mutex;
  std::set<cuda::Address> starts;
};

Signals& signals() {
  static Signals* instance = new Signals;
  return *instance;
}

}  // namespace

hipError_t allocate_signal(const cuda::Driver& driver, void** pointer, std::size_t bytes) {
  if (bytes != kSignalBytes) return hipErrorInvalidValue;
  const int code =
      driver.mem_host_alloc(pointer, bytes, cuda::kHostPortable | cuda::kHostDeviceMap);
  if (code != 0) return from_cuda(code);
  Signals& state = signals();
  const std::lock_guard<std::mutex> lock(state.mutex);
  state.starts.insert(cuda::address(*pointer));
  return hipSuccess;
}

bool is_signal(const void* pointer) {
  Signals& state = signals();
  const std::lock_guard<std::mutex> lock(state.mutex);
  const auto next = state.starts.upper_bound(cuda::address(pointer));
  if (next == state.starts.begin()) return false;
  return cuda::address(pointer) - *std::prev(next) < kSignalBytes;
}

bool free_signal(const cuda::Driver& driver, void* pointer, hipError_t* error) {
  Signals& state = signals();
  {
    const std::lock_guard<std::mutex> lock(state.mutex);
    if (state.starts.erase(cuda::address(pointer)) == 0) return false;
  }
  *error = from_cuda(driver.mem_free_host(pointer));
  return true;
}

}  // namespace forward
