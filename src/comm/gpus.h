// The process's GPUs with their vendor libraries: found, opened and loaded when first asked for,
// since a process that only uses the host must not initialise them.
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
#include "ccl/nccl/nccl_library.h"
#include "device/gpu/gpu_device.h"

namespace hetccl::comm {

/// Thread-safe. Outlives what it hands out.
class Gpus {
 public:
  /// `runtime` replaces the one that would be found (the tests' that counts calls).
  Gpus(const Config& config, const Log& log,
       std::shared_ptr<const device::gpu::Api> runtime = nullptr)
      : config_(config), log_(log) {
    if (runtime != nullptr) runtime_ = std::move(runtime);
  }

  /// Whether `name` is "cuda" or "cuda:<index>".
  static bool names_one(std::string_view name);
  /// "cuda" with the index of the calling thread's current device, 0 where it has none; other names
  /// as they are.
  std::string resolve(std::string_view name);
  /// The device of a name; Unsupported or InvalidArgument with the reason.
  Result<device::Device*> device(std::string_view name);
  /// The library for clusters of `device`, which is one of these; Unsupported with the reason.
  Result<ccl::Library*> library(const device::Device& device);

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
  const Result<std::shared_ptr<const ccl::nccl::Api>>& nccl();
  Result<std::unique_ptr<device::GpuDevice>> open(int index);

  const Config& config_;
  const Log& log_;
  std::mutex mutex_;
  Loaded<device::gpu::Api> runtime_;
  Loaded<device::kernels::Compiler> compiler_;
  Loaded<ccl::nccl::Api> nccl_;
  std::map<int, Gpu> gpus_;
};

}  // namespace hetccl::comm
