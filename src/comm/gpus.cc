#include "comm/gpus.h"

#include <algorithm>
#include <array>
#include <charconv>

namespace hetccl::comm {

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

std::string Gpus::resolve(std::string_view name) {
  std::string text(name);
  if (index_of(name) != -1) return text;
  std::lock_guard lock(mutex_);
  if (!runtime().ok()) return text;
  return text + ":" + std::to_string(std::max(device::gpu::current_device(*runtime_->value()), 0));
}

const Result<std::shared_ptr<const device::gpu::Api>>& Gpus::runtime() {
  if (!runtime_) runtime_ = row_.load_runtime(config_);
  return *runtime_;
}

const Result<std::shared_ptr<const device::kernels::Compiler>>& Gpus::compiler() {
  if (!compiler_) compiler_ = row_.load_compiler(config_);
  return *compiler_;
}

const Result<LoadedLibrary>& Gpus::library() {
  if (!library_) {
    library_ = row_.load_library(config_, runtime().ok() ? runtime().value()->path : std::string());
  }
  return *library_;
}

Result<std::unique_ptr<device::GpuDevice>> Gpus::open(int index) {
  device::GpuOptions options = device::options_of(config_, index);
  options.log = log_;
  if (row_.load_compiler) {
    if (compiler().ok()) {
      options.compiler = compiler_->value();
    } else {
      log_.info("GPUs have no kernels, so hetccl does not add on them: %s",
                compiler_->status().message().c_str());
    }
  }
  return device::make_gpu_device(runtime_->value(), options);
}

Result<device::Device*> Gpus::device(std::string_view name) {
  const auto index = index_of(resolve(name));
  std::lock_guard lock(mutex_);
  if (!runtime().ok()) return runtime().status();
  if (!index || *index < 0)
    return error(ErrorCode::InvalidArgument, "device \"%.80s\" is no GPU",
                 std::string(name).c_str());
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
      gpu.library = library_->value().make(gpu.device);
    }
    return gpu.library.get();
  }
  return error(ErrorCode::InternalError, "a device of no vendor");
}

bool Gpus::in_use() {
  if (row_.in_process == nullptr || !row_.in_process->is_loaded()) return false;
  std::lock_guard lock(mutex_);
  return runtime().ok();
}

// Called without the lock: a driver may wait for the device.
Result<void*> Gpus::allocate(size_t bytes, void*& context) {
  std::unique_lock lock(mutex_);
  HETCCL_TRY(runtime().status());
  const auto api = runtime_->value();
  lock.unlock();
  void* memory = nullptr;
  int code = api->get_context(&context);
  if (code == 0) code = api->allocate(&memory, bytes);
  if (code == 0 && memory != nullptr) return memory;
  return error(ErrorCode::SystemError, "%s:%d has no %zu bytes: %s", vendor().c_str(),
               current_device(), bytes, api->error_text(code));
}

Status Gpus::free(void* memory, void* context) {
  std::unique_lock lock(mutex_);
  HETCCL_TRY(runtime().status());
  const auto api = runtime_->value();
  lock.unlock();
  void* before = nullptr;
  const bool changes = api->get_context(&before) != 0 || before != context;
  if (changes) api->set_context(context);
  const int code = api->free(memory);
  if (changes) api->set_context(before);
  if (code == 0) return {};
  return error(ErrorCode::SystemError, "freeing memory of %s: %s", vendor().c_str(),
               api->error_text(code));
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
  if (devices.empty())  // report the vendor nevertheless
    return {{{"available", false}, {"reason", "there is no device"}, {"vendor", vendor()}}};
  return devices;
}

std::vector<Json> Gpus::describe_libraries() {
  std::lock_guard lock(mutex_);
  std::vector<Json> libraries;
  const auto describe = [&](const std::string& name, const Status& status, const auto& library) {
    if (status.ok()) {
      libraries.push_back({{"available", true},
                           {"name", name},
                           {"path", library()->path},
                           {"version", library()->version}});
    } else {
      libraries.push_back({{"available", false}, {"name", name}, {"reason", status.message()}});
    }
  };
  describe(row_.runtime, runtime().status(), [&] { return runtime().value().get(); });
  if (row_.load_compiler)
    describe(row_.compiler, compiler().status(), [&] { return compiler().value().get(); });
  if (row_.library.empty()) return libraries;
  const bool left_out = library().ok() && library().value().path == topology::kNoLibrary;
  const Status reason =
      error(ErrorCode::Unsupported, "switched off: each device is a cluster alone");
  describe(row_.library, left_out ? reason : library().status(),
           [&] { return &library().value(); });
  return libraries;
}

}  // namespace hetccl::comm
