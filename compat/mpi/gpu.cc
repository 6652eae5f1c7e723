#include "mpi/gpu.h"

#include <sched.h>

#include <atomic>
#include <map>

#include "base/cpu_pause.h"
#include "base/dynlib.h"

namespace hetccl::mpi {
namespace {

using device::gpu::Api;

// The driver, once the program has loaded it; null before.
std::shared_ptr<const Api> api() {
  static std::mutex mutex;
  static std::shared_ptr<const Api> loaded;
  const std::lock_guard lock(mutex);
  if (loaded == nullptr) {
    auto found = device::gpu::load_cuda();
    if (found.ok()) loaded = found.value();
  }
  return loaded;
}

const Api* api_if_loaded() {
  static std::atomic<const Api*> known{nullptr};
  static std::atomic<uint64_t> looked{0};
  if (const Api* found = known.load(std::memory_order_acquire)) return found;
  const uint64_t loads = count_library_loads();
  if (looked.load(std::memory_order_acquire) == loads) return known.load();
  const Api* found = loaded_libraries("libcuda.so").empty() ? nullptr : api().get();
  known.store(found);
  looked.store(loads, std::memory_order_release);  // last: other threads rely on it
  return found;
}

}  // namespace

bool has_gpu_runtime() {
  return api_if_loaded() != nullptr;
}

Owner owner_of(const void* address) {
  const Api* runtime = api_if_loaded();
  Owner owner;
  if (runtime == nullptr || address == nullptr ||
      runtime->memory_owner(address, &owner.gpu, &owner.managed) != 0) {
    return {};
  }
  return owner;
}

Result<std::unique_ptr<GpuQueue>> GpuQueue::create(device::Device& device) {
  std::unique_ptr<GpuQueue> queue(new GpuQueue(device));
  HETCCL_ASSIGN(queue->stream_, device.create_stream());
  HETCCL_ASSIGN(queue->default_, device.wrap_stream(nullptr));
  HETCCL_ASSIGN(queue->event_, device.create_event());
  HETCCL_ASSIGN(void* memory, device.allocate_pinned(sizeof(device::Flag)));
  queue->flag_ = new (memory) device::Flag;
  return queue;
}

GpuQueue::~GpuQueue() {
  if (flag_ != nullptr) device_.free_pinned(flag_);
}

Status GpuQueue::follow_default_stream() {
  HETCCL_TRY(device_.record(*event_, *default_));
  return device_.wait(*stream_, *event_);
}

Result<uint32_t> GpuQueue::mark() {
  HETCCL_TRY(device_.write_flag(*stream_, *flag_, ++marks_));
  return marks_;
}

Result<Gpu*> Gpu::open(int index) {
  static std::mutex mutex;
  static std::map<int, std::unique_ptr<Gpu>>* gpus = new std::map<int, std::unique_ptr<Gpu>>;
  const std::lock_guard lock(mutex);
  auto& gpu = (*gpus)[index];
  if (gpu != nullptr) return gpu.get();
  const auto runtime = api();
  if (runtime == nullptr) return error(ErrorCode::Unsupported, "no GPU's runtime is loaded");
  device::GpuOptions options;
  options.index = index;
  HETCCL_ASSIGN(auto device, device::make_gpu_device(runtime, options));
  gpu.reset(new Gpu(std::move(device)));
  return gpu.get();
}

Status Gpu::copy(void* dst, const void* src, size_t bytes) {
  const std::lock_guard lock(mutex_);
  if (copies_ == nullptr) {
    HETCCL_ASSIGN(copies_, GpuQueue::create(*device_));
  }
  HETCCL_TRY(copies_->follow_default_stream());
  if (bytes > 0) {
    HETCCL_TRY(copies_->copy(dst, src, bytes));
  }
  HETCCL_ASSIGN(const uint32_t mark, copies_->mark());
  for (int i = 0; !copies_->is_reached(mark); ++i) {
    if (i < 10'000)
      cpu_pause();
    else
      sched_yield();
  }
  return {};
}

}  // namespace hetccl::mpi
