#include "device/gpu/vendors.h"

#include <unistd.h>

#include <array>

namespace hetccl::device::gpu {
namespace {

constexpr const char* kKfd = "/dev/kfd";
constexpr std::array kVendors = {&kCuda, &kHip};

// A runtime that the user names may work without AMD's driver, as tests/amd/forward does.
std::shared_ptr<InProcess> hip_of(const Config& config) {
  const bool without_driver = !config.hip_library.empty() && access(kKfd, F_OK) != 0;
  return hip_in_process(without_driver ? "" : kKfd);
}

}  // namespace

constinit const Vendor kCuda = {
    .name = "cuda",
    .in_process = [](const Config&) { return cuda_in_process(); },
    .load_runtime = [](const Config&) { return load_cuda(); },
    .load_compiler = [](const Config& config) { return kernels::load_nvrtc(config.nvrtc_library); },
};

constinit const Vendor kHip = {
    .name = "hip",
    .in_process = hip_of,
    .load_runtime = [](const Config& config) { return load_hip(config.hip_library); },
    .load_compiler =
        [](const Config& config) { return kernels::load_hiprtc(config.hiprtc_library); },
};

std::span<const Vendor* const> vendors() {
  return kVendors;
}

}  // namespace hetccl::device::gpu
