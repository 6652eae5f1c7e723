// The process's GPUs of one vendor and their libraries. Found, opened and loaded on first use,
// because a process that only uses the host must not initialise them.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/config.h"
#include "base/json.h"
#include "base/log.h"
#include "comm/adaptors.h"

namespace hetccl::comm {

/// Thread-safe. Must outlive the devices it returns; its arguments must outlive it.
class Gpus {
 public:
  Gpus(const GpuRow& row, const Config& config, const Log& log)
      : row_(row), config_(config), log_(log) {}

  [[nodiscard]] const std::string& vendor() const { return row_.vendor; }
  /// Returns whether `name` is "<vendor>" or "<vendor>:<index>".
  [[nodiscard]] bool is_name(std::string_view name) const { return index_of(name).has_value(); }
  /// Returns the index after the colon, -1 for "<vendor>" alone, nothing for any other name.
  [[nodiscard]] std::optional<int> index_of(std::string_view name) const;
  /// Replaces "<vendor>" by the calling thread's current device, or by index 0 if it has none.
  /// Returns other names unchanged.
  std::string resolve(std::string_view name);
  /// Returns the device of that name, or Unsupported or InvalidArgument with the reason.
  Result<device::Device*> device(std::string_view name);
  /// Returns the library for clusters of `device`, which must be one of these, or Unsupported with
  /// the reason.
  Result<ccl::Library*> library(const device::Device& device);

  /// Returns the process's own use of these GPUs; loads and initialises nothing. `current_device`
  /// is the calling thread's; the other returns the GPU that holds `address` if the host cannot
  /// reach it. -1: none.
  [[nodiscard]] int current_device() const {
    return row_.in_process != nullptr ? row_.in_process->current_device() : -1;
  }
  [[nodiscard]] int owner_of(const void* address) const {
    if (row_.in_process == nullptr) return -1;
    const auto [device, managed] = row_.in_process->owner_of(address);
    return managed ? -1 : device;
  }
  /// Returns whether the process has loaded their runtime and it shows a GPU.
  [[nodiscard]] bool in_use();
  /// Allocates memory of the calling thread's current device, and sets `context` to that device's
  /// context.
  Result<void*> allocate(size_t bytes, void*& context);
  Status free(void* memory, void* context);

  /// Used by `hetccl info`.
  std::vector<Json> describe_devices();
  std::vector<Json> describe_libraries();

 private:
  struct Gpu {
    std::shared_ptr<device::GpuDevice> device;
    std::unique_ptr<ccl::Library> library;
  };
  template <typename Api>
  using Loaded = std::optional<Result<std::shared_ptr<const Api>>>;

  // Requires the lock. The first call decides the result.
  const Result<std::shared_ptr<const device::gpu::Api>>& runtime();
  const Result<std::shared_ptr<const device::kernels::Compiler>>& compiler();
  const Result<LoadedLibrary>& library();
  Result<std::unique_ptr<device::GpuDevice>> open(int index);

  const GpuRow& row_;
  const Config& config_;
  const Log& log_;
  std::mutex mutex_;
  Loaded<device::gpu::Api> runtime_;
  Loaded<device::kernels::Compiler> compiler_;
  std::optional<Result<LoadedLibrary>> library_;
  std::map<int, Gpu> gpus_;
};

}  // namespace hetccl::comm
