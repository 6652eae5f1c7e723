// The process's GPUs of one vendor with their libraries: found, opened and loaded when first asked
// for, since a process that only uses the host must not initialise them.
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

/// Thread-safe. Outlives what it hands out, and not its arguments.
class Gpus {
 public:
  Gpus(const GpuRow& row, const Config& config, const Log& log)
      : row_(row), config_(config), log_(log) {}

  [[nodiscard]] const std::string& vendor() const { return row_.vendor; }
  /// Whether `name` is "<vendor>" or "<vendor>:<index>".
  [[nodiscard]] bool names_one(std::string_view name) const { return index_of(name).has_value(); }
  /// The index behind the colon; -1: none is named; nothing for what is no such name.
  [[nodiscard]] std::optional<int> index_of(std::string_view name) const;
  /// "<vendor>" with the index of the calling thread's current device, 0 where it has none; other
  /// names as they are.
  std::string resolve(std::string_view name);
  /// The device of a name; Unsupported or InvalidArgument with the reason.
  Result<device::Device*> device(std::string_view name);
  /// The library for clusters of `device`, which is one of these; Unsupported with the reason.
  Result<ccl::Library*> library(const device::Device& device);

  /// What the process does with these GPUs by itself, which loads and initialises nothing: the
  /// calling thread's current one, and the one whose memory an address is that the host cannot
  /// reach; -1: none.
  [[nodiscard]] int current_device() const {
    return row_.in_process != nullptr ? row_.in_process->current_device() : -1;
  }
  [[nodiscard]] int owner_of(const void* address) const {
    if (row_.in_process == nullptr) return -1;
    const auto [device, managed] = row_.in_process->owner_of(address);
    return managed ? -1 : device;
  }
  /// Whether the process has loaded their runtime, and it shows a GPU.
  [[nodiscard]] bool in_use();
  /// Memory of the calling thread's current device, whose context `context` becomes.
  Result<void*> allocate(size_t bytes, void*& context);
  Status free(void* memory, void* context);

  /// For `hetccl info`.
  std::vector<Json> describe_devices();
  std::vector<Json> describe_libraries();

 private:
  struct Gpu {
    std::shared_ptr<device::GpuDevice> device;
    std::unique_ptr<ccl::Library> library;
  };
  template <typename Api>
  using Loaded = std::optional<Result<std::shared_ptr<const Api>>>;

  // With the lock held: the first call decides.
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
