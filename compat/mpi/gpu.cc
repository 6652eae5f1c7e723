#include "mpi/gpu.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <map>
#include <vector>

#include "base/cpu_pause.h"
#include "base/dynlib.h"

namespace hetccl::mpi {
namespace {

using device::gpu::Api, device::gpu::InProcess, device::gpu::Vendor, device::gpu::vendors;

// A bad setting is reported in MPI_Init.
const Config& settings() {
  static const auto* const once = new Result(Config::from_environment());
  static const auto* const defaults = new Config;
  return once->ok() ? once->value() : *defaults;
}

// The vendors' runtimes that the process has loaded.
class LoadedRuntimes {
 public:
  static LoadedRuntimes& get() {
    static auto* const once = new LoadedRuntimes;  // leaked: other threads may use it at exit
    return *once;
  }

  [[nodiscard]] VendorSet find() {
    const VendorSet found = found_.load(std::memory_order_acquire);
    if (found == possible_) return found;
    const uint64_t loads = count_library_loads();
    if (looked_.load(std::memory_order_acquire) != loads) look(loads);
    return found_.load(std::memory_order_acquire);
  }
  struct Row {
    const Vendor* vendor;
    std::shared_ptr<InProcess> in_process;
  };
  [[nodiscard]] const Row& row(size_t place) const { return rows_[place]; }

 private:
  LoadedRuntimes() {
    for (const Vendor* vendor : vendors()) {
      rows_.push_back({vendor, vendor->in_process(settings())});
      if (rows_.back().in_process->is_possible()) possible_ |= 1U << (rows_.size() - 1);
    }
  }
  void look(uint64_t loads) {
    VendorSet found = 0;
    for (size_t i = 0; i < rows_.size(); ++i) {
      if ((possible_ >> i & 1U) != 0 && rows_[i].in_process->is_loaded()) found |= 1U << i;
    }
    found_.fetch_or(found, std::memory_order_release);
    looked_.store(loads, std::memory_order_release);  // last: readers of looked_ rely on the rows
  }

  std::vector<Row> rows_;  // in the table's order
  VendorSet possible_ = 0;
  std::atomic<VendorSet> found_{0};
  std::atomic<uint64_t> looked_{0};
};

// Loads the vendor's runtime at its first use.
Result<std::shared_ptr<const Api>> runtime_of(const Vendor& vendor) {
  static std::mutex mutex;
  static auto* const loaded = new std::map<const Vendor*, std::shared_ptr<const Api>>;
  const std::lock_guard lock(mutex);
  auto& runtime = (*loaded)[&vendor];
  if (runtime == nullptr) {
    HETCCL_ASSIGN(runtime, vendor.load_runtime(settings()));
  }
  return runtime;
}

}  // namespace

VendorSet set_of(const Vendor& vendor) {
  const auto rows = vendors();
  return 1U << (std::find(rows.begin(), rows.end(), &vendor) - rows.begin());
}

VendorSet loaded_runtimes() {
  return LoadedRuntimes::get().find();
}

// Asks the last row first: a runtime may be built on one of an earlier row, which knows the same
// memory too.
Owner owner_of(const void* address) {
  LoadedRuntimes& runtimes = LoadedRuntimes::get();
  VendorSet left = address == nullptr ? 0 : runtimes.find();
  while (left != 0) {
    const size_t last = static_cast<size_t>(std::bit_width(left)) - 1;
    const LoadedRuntimes::Row& row = runtimes.row(last);
    const device::gpu::Owner owner = row.in_process->owner_of(address);
    if (owner.device >= 0) return {{row.vendor, owner.device}, owner.managed};
    left &= ~(1U << last);
  }
  return {};
}

Result<GpuName> find_gpu(int index) {
  Status none;
  bool any = false;
  for (const Vendor* vendor : vendors()) {
    const auto runtime = runtime_of(*vendor);
    int count = 0;
    if (runtime.ok() && runtime.value()->device_count(&count) == 0 && index < count)
      return GpuName{vendor, index};
    any |= count > 0;
    if (none.ok()) none = runtime.status();
  }
  return any || none.ok() ? error(ErrorCode::InvalidArgument, "no GPU %d here", index) : none;
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

Result<Gpu*> Gpu::open(GpuName name) {
  static std::mutex mutex;
  static auto* const gpus = new std::map<GpuName, std::unique_ptr<Gpu>>;
  const std::lock_guard lock(mutex);
  auto& gpu = (*gpus)[name];
  if (gpu != nullptr) return gpu.get();
  HETCCL_ASSIGN(const auto runtime, runtime_of(*name.vendor));
  device::GpuOptions options = device::options_of(settings(), name.index);
  if (!runtime->write_word) {  // a kernel writes the marks
    HETCCL_ASSIGN(options.compiler, name.vendor->load_compiler(settings()));
  }
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
