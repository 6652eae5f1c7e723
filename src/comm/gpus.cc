#include "comm/gpus.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <thread>

#include "ccl/nccl/tuner_plugin.h"

namespace hetccl::comm {
namespace {

// What the vendor's library does with a device, in terms of the device seam.
class DeviceWorkspace : public ccl::Workspace {
 public:
  explicit DeviceWorkspace(std::shared_ptr<device::GpuDevice> device)
      : device_(std::move(device)) {}

  void make_current() override { device_->make_current(); }
  Result<void*> allocate(size_t bytes) override { return device_->allocate(bytes); }
  void free(void* memory) override { device_->free(memory); }
  Result<void*> acquire_stream() override {
    HETCCL_ASSIGN(auto stream, device_->create_stream());
    void* native = stream->native();
    std::lock_guard lock(mutex_);
    streams_[native] = std::move(stream);
    return native;
  }
  void release_stream(void* stream) override {
    std::lock_guard lock(mutex_);
    streams_.erase(stream);
  }
  [[nodiscard]] std::string architecture() const override { return device_->architecture(); }
  bool drain(void* stream, const std::function<bool()>& give_up) override;

 private:
  const std::shared_ptr<device::GpuDevice> device_;
  std::mutex mutex_;
  std::map<void*, std::unique_ptr<device::Stream>> streams_;
};

// Whether the stream can still be asked is the vendor's to say: a flag shows it in any case. Its
// memory outlives a wait that is given up, for the stream may write it yet.
bool DeviceWorkspace::drain(void* stream, const std::function<bool()>& give_up) {
  auto memory = device_->allocate_pinned(sizeof(device::Flag));
  auto wrapped = device_->wrap_stream(stream);
  if (!memory.ok() || !wrapped.ok()) return false;
  auto& flag = *static_cast<device::Flag*>(memory.value());
  bool drained = device_->write_flag(*wrapped.value(), flag, 1).ok();
  while (drained && !flag.reached(1)) {
    if (give_up()) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  device_->free_pinned(memory.value());
  return drained;
}

}  // namespace

std::optional<int> Gpus::index_of(std::string_view name) const {
  if (name == vendor()) return -1;
  const std::string prefix = vendor() + ":";
  if (!name.starts_with(prefix)) return std::nullopt;
  const std::string_view digits = name.substr(prefix.size());
  int index = -1;
  const auto [end, failure] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
  const bool whole = failure == std::errc() && end == digits.data() + digits.size();
  return whole && index >= 0 ? std::optional(index) : std::nullopt;
}

bool Gpus::names_one(std::string_view name) const {
  return index_of(name).has_value();
}

std::string Gpus::resolve(std::string_view name) {
  std::string text(name);
  if (index_of(name) != -1) return text;
  std::lock_guard lock(mutex_);
  if (!runtime().ok()) return text;
  return text + ":" + std::to_string(std::max(current_device(*runtime_->value()), 0));
}

const Result<std::shared_ptr<const device::gpu::Api>>& Gpus::runtime() {
  if (!runtime_) runtime_ = row_.load_runtime(config_);
  return *runtime_;
}

const Result<std::shared_ptr<const device::kernels::Compiler>>& Gpus::compiler() {
  if (!compiler_) compiler_ = row_.load_compiler(config_);
  return *compiler_;
}

const Result<std::shared_ptr<const ccl::nccl::Api>>& Gpus::library() {
  if (!library_) library_ = row_.load_library(config_);
  return *library_;
}

Result<std::unique_ptr<device::GpuDevice>> Gpus::open(int index) {
  device::GpuOptions options;
  options.index = index;
  options.blocks = config_.gpu_blocks;
  options.log = log_;
  options.cache = config_.kernel_cache;
  if (const std::string folder = user_cache_folder(); options.cache.empty() && !folder.empty())
    options.cache = folder + "/hetccl";
  if (compiler().ok()) {
    options.compiler = compiler_->value();
  } else {
    log_.info("GPUs have no kernels, so hetccl does not add on them: %s",
              compiler_->status().message().c_str());
  }
  return device::make_gpu_device(runtime_->value(), options);
}

Result<device::Device*> Gpus::device(std::string_view name) {
  const auto index = index_of(resolve(name));
  std::lock_guard lock(mutex_);
  if (!runtime().ok()) return runtime().status();
  if (!index || *index < 0)
    return error(Code::InvalidArgument, "device \"%.80s\" is no GPU", std::string(name).c_str());
  auto& gpu = gpus_[*index];
  if (gpu.device == nullptr) {
    HETCCL_ASSIGN(gpu.device, open(*index));
  }
  return gpu.device.get();
}

Result<ccl::Library*> Gpus::library(const device::Device& device) {
  std::lock_guard lock(mutex_);
  for (auto& [index, gpu] : gpus_) {
    if (gpu.device.get() != &device) continue;
    if (gpu.library == nullptr) {
      HETCCL_TRY(library().status());
      // Before the library's first call, on every rank.
      if (config_.tune != "off" && !config_.deterministic) ccl::nccl::offer_tuner();
      gpu.library = ccl::make_nccl_library(
          library_->value(), std::make_shared<DeviceWorkspace>(gpu.device), row_.reach);
    }
    return gpu.library.get();
  }
  return error(Code::InternalError, "a device of no vendor");
}

std::vector<Json> Gpus::describe_devices() {
  std::lock_guard lock(mutex_);
  if (!runtime().ok()) {
    return {{{"available", false}, {"reason", runtime().status().message()}, {"vendor", vendor()}}};
  }
  const auto& api = *runtime_->value();
  std::vector<Json> devices;
  int count = 0;
  api.device_count(&count);
  for (int i = 0; i < count; ++i) {
    std::array<char, 256> model{}, bus_id{};
    std::string architecture;
    const int size = static_cast<int>(model.size());
    const bool known = api.device_name(model.data(), size, i) == 0 &&
                       api.device_bus_id(bus_id.data(), size, i) == 0 &&
                       api.device_architecture(&architecture, i) == 0;
    if (!known) continue;
    devices.push_back({{"architecture", architecture},
                       {"available", true},
                       {"bus_id", std::string(bus_id.data())},
                       {"device", vendor() + ":" + std::to_string(i)},
                       {"model", std::string(model.data())},
                       {"vendor", vendor()}});
    const auto opened = gpus_.find(i);
    if (opened != gpus_.end() && opened->second.device != nullptr) {
      devices.back().set("pinned_bytes", opened->second.device->pinned_bytes());
    }
  }
  return devices;
}

std::vector<Json> Gpus::describe_libraries() {
  std::lock_guard lock(mutex_);
  const auto describe = [](const std::string& name, const auto& loaded) -> Json {
    if (!loaded.ok())
      return {{"available", false}, {"name", name}, {"reason", loaded.status().message()}};
    const auto& library = *loaded.value();
    return {
        {"available", true}, {"name", name}, {"path", library.path}, {"version", library.version}};
  };
  return {describe(row_.runtime, runtime()), describe(row_.compiler, compiler()),
          describe(row_.library, library())};
}

}  // namespace hetccl::comm
