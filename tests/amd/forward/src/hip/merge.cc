#include "hip/merge.h"

#include <atomic>
#include <map>
#include <mutex>
#include <vector>

#include "cuda/numbers.h"
#include "hip/context.h"
#include "hip/errors.h"
#include "hip/merge_kernel.h"
#include "hip/relaxed_capture.h"

namespace forward {
namespace {

constexpr std::size_t kEntries = 4096;

// Pinned, coherent memory, which the merge kernel reads when it runs. So a graph that was captured
// before an allocation, or before its release, merges what exists when the graph runs.
struct Table {
  std::atomic<std::uint64_t> used;  // Entries from `used` on were never in use.
  Copies entries[kEntries];
};

static_assert(sizeof(Copies) == 40 && offsetof(Table, entries) == 8);
static_assert(offsetof(Copies, host) == 0 && offsetof(Copies, device) == 8);
static_assert(offsetof(Copies, base) == 16 && offsetof(Copies, locks) == 24);
static_assert(offsetof(Copies, words) == 32 && kMergeChunkWords == 4096);

struct Merges {
  std::mutex mutex;
  Table* table = nullptr;
  std::vector<std::size_t> free_slots;
  std::map<int, cuda::Handle> kernels;  // By device.
};

Merges& merges() {
  static Merges* instance = new Merges;
  return *instance;
}

// The GPU may read the entry at any time, so the number of words changes in one step.
void set_words(Copies& entry, std::uint64_t words) {
  std::atomic_ref(entry.words).store(words, std::memory_order_seq_cst);
}

hipError_t allocate_table(const cuda::Driver& driver, Merges& state) {
  if (state.table != nullptr) return hipSuccess;
  void* memory = nullptr;
  const int code =
      driver.mem_host_alloc(&memory, sizeof(Table), cuda::kHostPortable | cuda::kHostDeviceMap);
  if (code == 0) state.table = new (memory) Table();
  return from_cuda(code);
}

hipError_t load(const cuda::Driver& driver, cuda::Handle* kernel) {
  const RelaxedCapture relaxed(driver);
  cuda::Handle module = nullptr;
  int code = driver.module_load_data(&module, kMergeKernel);
  if (code == 0) code = driver.module_get_function(kernel, module, "merge");
  // NVIDIA's driver may load a function lazily. Reading an attribute loads it.
  int threads = 0;
  if (code == 0) code = driver.function_get_attribute(&threads, cuda::kFunctionMaxThreads, *kernel);
  return from_cuda(code);
}

hipError_t load_for_device(const cuda::Driver& driver, Merges& state, cuda::Handle* kernel) {
  const auto known = state.kernels.find(current_device());
  if (known != state.kernels.end()) {
    *kernel = known->second;
    return hipSuccess;
  }
  const hipError_t error = load(driver, kernel);
  if (error == hipSuccess) state.kernels[current_device()] = *kernel;
  return error;
}

std::map<int, cuda::Handle> loaded_kernels() {
  Merges& state = merges();
  const std::lock_guard<std::mutex> lock(state.mutex);
  return state.kernels;
}

hipError_t synchronize_devices(const cuda::Driver& driver) {
  hipError_t error = hipSuccess;
  for (const auto& [device, kernel] : loaded_kernels()) {
    cuda::Handle context = nullptr;
    if (error == hipSuccess) error = primary_context(driver, device, &context);
    if (error == hipSuccess) error = from_cuda(driver.ctx_set_current(context));
    if (error == hipSuccess) error = from_cuda(driver.ctx_synchronize());
  }
  const hipError_t restored = make_current(driver);
  return error != hipSuccess ? error : restored;
}

}  // namespace

hipError_t load_merge_kernel(const cuda::Driver& driver) {
  Merges& state = merges();
  const std::lock_guard<std::mutex> lock(state.mutex);
  const hipError_t error = allocate_table(driver, state);
  cuda::Handle kernel = nullptr;
  return error != hipSuccess ? error : load_for_device(driver, state, &kernel);
}

hipError_t add_copies(const Copies& copies, std::size_t* slot) {
  Merges& state = merges();
  const std::lock_guard<std::mutex> lock(state.mutex);
  if (state.table == nullptr) return hipErrorContextIsDestroyed;
  const bool fresh = state.free_slots.empty();
  *slot = fresh ? state.table->used.load() : state.free_slots.back();
  if (*slot == kEntries) return hipErrorOutOfMemory;
  if (!fresh) state.free_slots.pop_back();
  Copies& entry = state.table->entries[*slot];
  entry.host = copies.host;
  entry.device = copies.device;
  entry.base = copies.base;
  entry.locks = copies.locks;
  set_words(entry, copies.words);
  if (fresh) state.table->used = *slot + 1;
  return hipSuccess;
}

hipError_t remove_copies(const cuda::Driver& driver, std::size_t slot) {
  Merges& state = merges();
  {
    const std::lock_guard<std::mutex> lock(state.mutex);
    if (state.table == nullptr) return hipErrorContextIsDestroyed;
    set_words(state.table->entries[slot], 0);
  }
  // A merge that read the entry before it was cleared may still run. Only after the wait may
  // another allocation use the slot.
  const hipError_t error = synchronize_devices(driver);
  if (error != hipSuccess) return error;
  const std::lock_guard<std::mutex> lock(state.mutex);
  state.free_slots.push_back(slot);
  return hipSuccess;
}

hipError_t enqueue_merge(const cuda::Driver& driver, cuda::Handle queue, Merge direction) {
  cuda::Handle kernel = nullptr;
  cuda::Address table = 0;
  {
    Merges& state = merges();
    const std::lock_guard<std::mutex> lock(state.mutex);
    if (state.table == nullptr) return hipSuccess;
    const hipError_t error = load_for_device(driver, state, &kernel);
    if (error != hipSuccess) return error;
    table = cuda::address(state.table);
  }
  // Without the lock: a launch waits while the queue is full, perhaps for another thread's launch.
  auto from = static_cast<std::uint32_t>(direction);
  void* parameters[] = {&table, &from};
  return from_cuda(driver.launch_kernel(kernel, kMergeBlocks, 1, 1, kMergeThreads, 1, 1, 0, queue,
                                        parameters, nullptr));
}

void forget_merges() {
  Merges& state = merges();
  const std::lock_guard<std::mutex> lock(state.mutex);
  state.table = nullptr;
  state.free_slots.clear();
  state.kernels.clear();
}

}  // namespace forward
