#include "device/gpu/gpu_device.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <optional>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/numa.h"
#include "device/gpu/loaded_kernels.h"
#include "device/gpu/pool.h"
#include "device/kernels/build.h"

namespace hetccl::device {
namespace {

using gpu::Api;
using gpu::check;

// Makes the device's context current while this lives. The thread's own context is restored.
class Current {
 public:
  Current(const Api& api, void* context) : api_(api) {
    changed_ = api_.get_context(&previous_) != 0 || previous_ != context;
    if (changed_) api_.set_context(context);
  }
  ~Current() {
    if (changed_) api_.set_context(previous_);
  }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;

 private:
  const Api& api_;
  void* previous_ = nullptr;
  bool changed_ = false;
};

// The device's context, held while anything of it is in use.
class Context {
 public:
  Context(std::shared_ptr<const Api> api, int device) : api_(std::move(api)), device_(device) {}
  ~Context() {
    if (handle_ != nullptr) api_->release_context(device_);
  }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  Status retain() {
    return check(*api_, api_->retain_context(&handle_, device_), "opening the device");
  }
  [[nodiscard]] const Api& api() const { return *api_; }
  [[nodiscard]] Current current() const { return {*api_, handle_}; }
  void make_current() const { api_->set_context(handle_); }

 private:
  const std::shared_ptr<const Api> api_;
  const int device_;
  void* handle_ = nullptr;
};

class GpuStream : public Stream {
 public:
  GpuStream(const Context& context, void* native, bool owned)
      : context_(context), native_(native), owned_(owned) {}
  ~GpuStream() override {
    if (!owned_) return;
    const Current current = context_.current();
    context_.api().destroy_stream(native_);
  }
  GpuStream(const GpuStream&) = delete;
  GpuStream& operator=(const GpuStream&) = delete;
  [[nodiscard]] void* native() const override { return native_; }

 private:
  const Context& context_;
  void* const native_;
  const bool owned_;
};

class GpuEvent : public Event {
 public:
  GpuEvent(const Context& context, void* native) : context_(context), native_(native) {}
  ~GpuEvent() override {
    const Current current = context_.current();
    context_.api().destroy_event(native_);
  }
  GpuEvent(const GpuEvent&) = delete;
  GpuEvent& operator=(const GpuEvent&) = delete;
  [[nodiscard]] void* native() const { return native_; }

 private:
  const Context& context_;
  void* const native_;
};

// Times for the test of stream waits.
constexpr std::chrono::milliseconds kHeadStart{1};
constexpr std::chrono::seconds kLongestTrial{2};

// A kernel copies this much before a copy engine would start.
constexpr size_t kKernelBytes = size_t{64} << 10U;

// Copies up to this length are started together, if there are many.
constexpr size_t kListed = size_t{256} << 10U;

// A batch's single block does this much in the time of another launch.
constexpr size_t kBatchCopy = size_t{64} << 10U, kBatchReduction = size_t{32} << 10U;

// Returns whether a kernel can copy vectors instead of bytes.
bool alike(const void* a, const void* b) {
  return (reinterpret_cast<uintptr_t>(a) - reinterpret_cast<uintptr_t>(b)) %
             kernels::kVectorBytes ==
         0;
}

bool all_alike(const Reduction& reduction) {
  return std::all_of(reduction.srcs, reduction.srcs + reduction.n_srcs,
                     [&](const void* src) { return alike(src, reduction.dst); });
}

void* native_of(const Event& event) {
  return static_cast<const GpuEvent&>(event).native();
}

class TableDevice : public GpuDevice {
 public:
  explicit TableDevice(std::shared_ptr<const Api> api, const GpuOptions& options)
      : options_(options), api_(*api), context_(std::move(api), options.index) {}
  ~TableDevice() override {
    const Current current = context_.current();
    loaded_.reset();
    memory_.reset();
    pinned_.reset();
  }
  TableDevice(const TableDevice&) = delete;
  TableDevice& operator=(const TableDevice&) = delete;

  Status open();
  void make_current() override {
    context_.make_current();
    api_.stand_apart();
  }
  [[nodiscard]] size_t pinned_bytes() const override { return pinned_->bytes(); }

  [[nodiscard]] uint32_t capabilities() const override {
    if (api_.reduce) return kDefaultStream | kKernels;
    return kDefaultStream | (loaded_ != nullptr ? kKernels | kEncodes | kBatches : 0U);
  }
  [[nodiscard]] bool supports(DataType type, RedOp op) const override {
    return GpuDevice::supports(type, op) && (!api_.reduces || api_.reduces(type, op));
  }
  [[nodiscard]] std::string vendor() const override { return api_.vendor; }
  [[nodiscard]] std::string model() const override { return model_; }
  [[nodiscard]] std::string architecture() const override { return architecture_; }
  [[nodiscard]] std::string bus_id() const override { return bus_id_; }
  [[nodiscard]] int multiprocessors() const override { return multiprocessors_; }

  Result<void*> allocate(size_t bytes) override {
    const Current current = context_.current();
    void* memory = nullptr;
    HETCCL_TRY(check(api_, memory_->allocate(&memory, bytes), "allocating")
                   .with(format("%zu bytes of device memory", bytes)));
    return memory;
  }
  void free(void* memory) override { memory_->free(memory); }
  Result<void*> allocate_pinned(size_t bytes) override {
    const Current current = context_.current();
    void* memory = nullptr;
    HETCCL_TRY(check(api_, pinned_->allocate(&memory, bytes), "allocating")
                   .with(format("%zu bytes of pinned memory", bytes)));
    return std::memset(memory, 0, bytes);
  }
  void free_pinned(void* memory) override { pinned_->free(memory); }
  Status reserve(size_t pinned_bytes, size_t device_bytes) override {
    const Current current = context_.current();
    HETCCL_TRY(check(api_, pinned_->reserve(pinned_bytes), "reserving pinned memory"));
    return check(api_, memory_->reserve(device_bytes), "reserving device memory");
  }
  Status pin(void* memory, size_t bytes) override {
    const Current current = context_.current();
    return check(api_, api_.pin(memory, bytes), "pinning shared memory");
  }
  void unpin(void* memory) override {
    const Current current = context_.current();
    api_.unpin(memory);
  }

  [[nodiscard]] std::optional<Allocation> find_allocation(const void* address) override;
  Result<DmaBuf> export_memory(const Allocation& allocation) override;
  [[nodiscard]] bool needs_flush() const override { return needs_flush_; }

  Result<std::unique_ptr<Stream>> create_stream() override {
    const Current current = context_.current();
    void* native = nullptr;
    HETCCL_TRY(check(api_, api_.create_stream(&native), "creating a stream"));
    return std::unique_ptr<Stream>(std::make_unique<GpuStream>(context_, native, true));
  }
  Result<std::unique_ptr<Stream>> wrap_stream(void* native) override {
    return std::unique_ptr<Stream>(std::make_unique<GpuStream>(context_, native, false));
  }
  bool is_capturing(void* native) override {
    const Current current = context_.current();
    int capturing = 0;
    return api_.is_capturing(native, &capturing) == 0 && capturing != 0;
  }
  Result<std::unique_ptr<Event>> create_event() override {
    const Current current = context_.current();
    void* native = nullptr;
    HETCCL_TRY(check(api_, api_.create_event(&native), "creating an event"));
    return std::unique_ptr<Event>(std::make_unique<GpuEvent>(context_, native));
  }

  Status record(Event& event, Stream& stream) override {
    const Current current = context_.current();
    return check(api_, api_.record(native_of(event), stream.native()), "recording an event");
  }
  Status wait(Stream& stream, Event& event) override {
    const Current current = context_.current();
    return check(api_, api_.wait(stream.native(), native_of(event)), "waiting for an event");
  }
  Status wait_flag(Stream& stream, Flag& flag, uint32_t value) override {
    const Current current = context_.current();
    const int code = stream_words_ ? api_.wait_word(stream.native(), &flag.word, value)
                                   : launch_flag(loaded_->wait_flag(), stream, flag, value);
    return check(api_, code, "waiting for a flag");
  }
  Status write_flag(Stream& stream, Flag& flag, uint32_t value) override {
    const Current current = context_.current();
    const int code = stream_words_ ? api_.write_word(stream.native(), &flag.word, value)
                                   : launch_flag(loaded_->write_flag(), stream, flag, value);
    return check(api_, code, "writing a flag");
  }
  Status copy(Stream& stream, void* dst, const void* src, size_t bytes) override {
    if (bytes == 0) return {};
    const Current current = context_.current();
    return check(api_, api_.copy(dst, src, bytes, stream.native()), "copying");
  }
  Status copy_soon(Stream& stream, void* dst, const void* src, size_t bytes) override {
    if (bytes > kKernelBytes || loaded_ == nullptr || !alike(dst, src)) {
      return copy(stream, dst, src, bytes);
    }
    Reduction one{.dst = dst, .n_srcs = 1, .count = bytes, .type = DataType::Uint8};
    one.srcs[0] = src;
    return reduce(stream, one);
  }
  Status copy_all(Stream& stream, std::span<const Copy> copies) override;
  Status reduce(Stream& stream, const Reduction& reduction) override;
  Status run(Stream& stream, std::span<const StreamWork> work, bool spins) override;
  Status call_host(Stream& stream, void (*function)(void*), void* argument) override {
    const Current current = context_.current();
    return check(api_, api_.call_host(stream.native(), function, argument), "calling the host");
  }

  bool progress() override { return false; }

 private:
  Status describe();
  Status load_kernels();
  Status try_stream_words();
  [[nodiscard]] void* batch_kernel_of(const StreamWork& work) const;
  [[nodiscard]] size_t count_together(std::span<const StreamWork> work, bool spins) const;
  Status launch_together(Stream& stream, std::span<const StreamWork> work);
  Status launch(Stream& stream, kernels::CopyList& list);
  int launch_flag(void* kernel, Stream& stream, Flag& flag, uint32_t value) {
    void* word = &flag.word;
    std::array<void*, 2> arguments = {&word, &value};
    return api_.launch(kernel, 1, 1, stream.native(), arguments.data());
  }

  const GpuOptions options_;
  const Api& api_;
  Context context_;
  std::string model_, architecture_, bus_id_;
  int numa_node_ = -1;
  int multiprocessors_ = 0;
  unsigned max_blocks_ = 1;
  bool needs_flush_ = true;
  bool stream_words_ = false;  // false: one-thread kernels poll and write flags
  std::unique_ptr<gpu::LoadedKernels> loaded_;
  // Optional, so that they are destroyed in the device's context.
  std::optional<gpu::Pool> memory_{std::in_place, api_.allocate, api_.free};
  std::optional<gpu::Pool> pinned_{std::in_place,
                                   [this](void** memory, size_t bytes) {
                                     const OnNode near(numa_node_);
                                     return api_.allocate_pinned(memory, bytes);
                                   },
                                   api_.free_pinned};
};

Status TableDevice::open() {
  HETCCL_TRY(context_.retain());
  const Current current = context_.current();
  HETCCL_TRY(describe());
  HETCCL_TRY(load_kernels());
  HETCCL_TRY(try_stream_words());
  if (!stream_words_ && loaded_ == nullptr) {
    return error(ErrorCode::Unsupported,
                 "streams of %s cannot wait for flags, and there is no compiler for a kernel that "
                 "does",
                 model_.c_str());
  }
  return {};
}

Status TableDevice::describe() {
  std::array<char, 256> text{};
  const int size = static_cast<int>(text.size());
  HETCCL_TRY(check(api_, api_.device_name(text.data(), size, options_.index), "its name"));
  model_ = text.data();
  HETCCL_TRY(check(api_, api_.device_bus_id(text.data(), size, options_.index), "its bus id"));
  bus_id_ = text.data();
  numa_node_ = numa_node_of(bus_id_);
  HETCCL_TRY(
      check(api_, api_.device_architecture(&architecture_, options_.index), "its architecture"));
  HETCCL_TRY(check(api_, api_.device_multiprocessors(&multiprocessors_, options_.index),
                   "its multiprocessors"));
  if (api_.needs_flush)
    HETCCL_TRY(check(api_, api_.needs_flush(&needs_flush_, options_.index), "its order of writes"));
  // Two blocks of a reduction fill a multiprocessor.
  max_blocks_ = static_cast<unsigned>(options_.blocks > 0 ? options_.blocks
                                                          : std::max(2 * multiprocessors_, 1));
  return {};
}

std::optional<Allocation> TableDevice::find_allocation(const void* address) {
  if (!api_.find_mapping) return {};
  const Current current = context_.current();
  gpu::Mapping mapping;
  if (api_.find_mapping(address, &mapping) != 0 || mapping.bytes == 0) return {};
  return Allocation{static_cast<std::byte*>(mapping.base), mapping.bytes, mapping.id,
                    mapping.on_device};
}

Result<DmaBuf> TableDevice::export_memory(const Allocation& allocation) {
  if (!api_.export_pages)
    return error(ErrorCode::Unsupported, "the runtime %s exports no dma-bufs", api_.path.c_str());
  const Current current = context_.current();
  int fd = -1;
  DmaBuf exported;
  HETCCL_TRY(check(api_,
                   api_.export_pages(allocation.base, allocation.bytes, &fd, &exported.offset),
                   "exporting memory as a dma-buf"));
  exported.fd = Fd(fd);
  return exported;
}

// A device whose kernels cannot be compiled is still useful: others reduce for it.
Status TableDevice::load_kernels() {
  if (options_.compiler == nullptr) return {};
  auto images = kernels::build(*options_.compiler, architecture_, kernels::Cache(options_.cache),
                               options_.log);
  if (!images.ok()) {
    options_.log.warn("%s has no kernels: %s", model_.c_str(), images.status().message().c_str());
    return {};
  }
  loaded_ = std::make_unique<gpu::LoadedKernels>(api_);
  return loaded_->load(images.value());
}

// Tests stream waits with a wait that the host ends later, because drivers report this ability
// wrongly, in both directions.
Status TableDevice::try_stream_words() {
  if (!api_.wait_word || !api_.write_word) return {};
  HETCCL_ASSIGN(auto stream, create_stream());
  void* memory = nullptr;
  HETCCL_TRY(check(api_, api_.allocate_pinned(&memory, 3 * sizeof(Flag)), "allocating flags"));
  std::memset(memory, 0, 3 * sizeof(Flag));
  auto* flags = static_cast<Flag*>(memory);
  Flag &here = flags[0], &gate = flags[1], &beyond = flags[2];
  const auto comes_to = [deadline = steady_clock().now() + kLongestTrial](const Flag& flag) {
    while (!flag.reached(1) && steady_clock().now() < deadline) std::this_thread::yield();
    return flag.reached(1);
  };
  const bool writes = api_.write_word(stream->native(), &here.word, 1) == 0;
  const bool waits = writes && api_.wait_word(stream->native(), &gate.word, 1) == 0;
  const bool ends = waits && api_.write_word(stream->native(), &beyond.word, 1) == 0;
  const bool comes = writes && comes_to(here);
  if (comes) std::this_thread::sleep_for(kHeadStart);
  const bool early = beyond.reached(1);
  gate.word.store(1, std::memory_order_release);
  const bool passes = ends && comes_to(beyond);
  stream_words_ = passes && !early;
  if (passes || !writes || (comes && !waits)) {
    api_.free_pinned(memory);
  } else {  // keep the memory: the stream may still write it
    options_.log.warn("streams of %s do not come to the words that they wait for or write",
                      model_.c_str());
  }
  return {};
}

Status TableDevice::reduce(Stream& stream, const Reduction& reduction) {
  HETCCL_TRY(validate(reduction));
  if (api_.reduce && reduction.encoded == 0) {
    const Current current = context_.current();
    return check(api_, api_.reduce(stream.native(), reduction), "reducing");
  }
  if (loaded_ == nullptr) return error(ErrorCode::Unsupported, "%s has no kernels", model_.c_str());
  if (reduction.count == 0) return {};
  const Current current = context_.current();
  kernels::Arguments arguments = kernels::arguments_of(reduction);
  const size_t per_block = kernels::kThreads * kernels::kVectorBytes / size_of(reduction.type);
  const size_t wanted = (reduction.count + per_block - 1) / per_block;
  const size_t most = reduction.blocks > 0 ? reduction.blocks : max_blocks_;
  const auto blocks = static_cast<unsigned>(std::min(wanted, most));
  std::array<void*, 1> pointers = {&arguments};
  void* kernel = reduction.encoded != 0
                     ? loaded_->encoded_reduction(reduction.type, reduction.encoding.format)
                     : loaded_->reduction(reduction.type, reduction.op);
  return check(api_,
               api_.launch(kernel, blocks, kernels::kThreads, stream.native(), pointers.data()),
               "reducing");
}

Status TableDevice::copy_all(Stream& stream, std::span<const Copy> copies) {
  kernels::CopyList list;
  for (const Copy& one : copies) {
    if (one.bytes > kListed || loaded_ == nullptr || !alike(one.dst, one.src)) {
      HETCCL_TRY(copy(stream, one.dst, one.src, one.bytes));
      continue;
    }
    if (one.bytes == 0) continue;
    list.copies[list.n++] = {one.dst, one.src, one.bytes};
    if (list.n == kernels::CopyList::kMost) HETCCL_TRY(launch(stream, list));
  }
  return list.n > 0 ? launch(stream, list) : Status();
}

// Launches the copies and empties the list.
Status TableDevice::launch(Stream& stream, kernels::CopyList& list) {
  const Current current = context_.current();
  const auto blocks = static_cast<unsigned>(std::min<size_t>(list.n, max_blocks_));
  std::array<void*, 1> pointers = {&list};
  const int code = api_.launch(loaded_->copy_list(), blocks, kernels::kThreads, stream.native(),
                               pointers.data());
  list.n = 0;
  return check(api_, code, "copying together");
}

Status TableDevice::run(Stream& stream, std::span<const StreamWork> work, bool spins) {
  while (!work.empty()) {
    const size_t n = count_together(work, spins);
    HETCCL_TRY(n > 1 ? launch_together(stream, work.first(n)) : enqueue(stream, work.front()));
    work = work.subspan(std::max<size_t>(n, 1));
  }
  return {};
}

// Returns null if a batch cannot take `work`.
void* TableDevice::batch_kernel_of(const StreamWork& work) const {
  const Reduction& reduction = work.reduction;
  const bool copies = work.kind == StreamWork::Kind::Copy;
  const DataType type = copies ? DataType::Uint8 : reduction.type;
  const size_t most = copies ? kBatchCopy : kBatchReduction;
  const bool fits = reduction.encoded == 0 && reduction.count > 0 &&
                    reduction.count * size_of(type) <= most && all_alike(reduction);
  return fits ? loaded_->batch(type, copies ? RedOp::Sum : reduction.op) : nullptr;
}

// Returns how many of `work`, from the first on, one launch does; 0 if the launch would cost more
// than the streams' own calls.
size_t TableDevice::count_together(std::span<const StreamWork> work, bool spins) const {
  size_t n = 0, works = 0;
  void* reduces = nullptr;
  for (const StreamWork& one : work) {
    if (n == kernels::Batch::kMostSteps || (one.kind == StreamWork::Kind::Wait && !spins)) break;
    if (one.kind == StreamWork::Kind::Copy || one.kind == StreamWork::Kind::Reduce) {
      void* const kernel = batch_kernel_of(one);
      if (kernel == nullptr || works == kernels::Batch::kMostWorks) break;
      if (one.kind == StreamWork::Kind::Reduce) {
        if (reduces != nullptr && reduces != kernel) break;
        reduces = kernel;
      }
      ++works;
    }
    ++n;
  }
  return works > 0 || !stream_words_ ? n : 0;
}

Status TableDevice::launch_together(Stream& stream, std::span<const StreamWork> work) {
  kernels::Batch batch;
  size_t works = 0;
  void* kernel = loaded_->batch(DataType::Uint8, RedOp::Sum);
  for (const StreamWork& one : work) {
    kernels::BatchStep& step = batch.steps[batch.n_steps++];
    step.kind = static_cast<kernels::BatchStep::Kind>(one.kind);
    step.value = one.value;
    step.word = one.flag;
    if (one.kind != StreamWork::Kind::Copy && one.kind != StreamWork::Kind::Reduce) continue;
    batch.works[works++] = kernels::arguments_of(one.reduction);
    if (one.kind == StreamWork::Kind::Copy) continue;
    HETCCL_TRY(validate(one.reduction));
    step.value = static_cast<uint32_t>(kernels::place_of(one.reduction.op));
    kernel = batch_kernel_of(one);
  }
  const Current current = context_.current();
  std::array<void*, 1> pointers = {&batch};
  return check(api_, api_.launch(kernel, 1, kernels::kThreads, stream.native(), pointers.data()),
               "launching short work");
}

}  // namespace

GpuOptions options_of(const Config& config, int index) {
  GpuOptions options;
  options.index = index;
  options.blocks = config.gpu_blocks;
  options.cache = config.kernel_cache;
  if (const std::string folder = user_cache_folder(); options.cache.empty() && !folder.empty())
    options.cache = folder + "/hetccl";
  return options;
}

Result<std::unique_ptr<GpuDevice>> make_gpu_device(std::shared_ptr<const gpu::Api> api,
                                                   const GpuOptions& options) {
  int devices = 0;
  HETCCL_TRY(check(*api, api->device_count(&devices), "counting devices"));
  if (options.index < 0 || options.index >= devices) {
    return error(ErrorCode::InvalidArgument, "%s device %d: there are 0 to %d here",
                 api->vendor.c_str(), options.index, devices - 1);
  }
  auto device = std::make_unique<TableDevice>(std::move(api), options);
  HETCCL_TRY(device->open().with(format("device %d", options.index)));
  return std::unique_ptr<GpuDevice>(std::move(device));
}

}  // namespace hetccl::device
