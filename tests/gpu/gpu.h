// The GPUs of the machine, for tests: opened as hetccl opens them, with copies that wait.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "comm/adaptors.h"
#include "device/gpu/gpu_device.h"

namespace hetccl::gpu_tests {

/// The vendors whose GPUs are tested: those of HETCCL_TEST_VENDORS, "cuda" by default. What tests
/// one device opens the first vendor's.
const std::vector<std::string>& vendors();
const comm::GpuRow& row_of(const std::string& vendor);
/// Whether the libraries of adaptors among them reduce elements of `type` by `op`.
bool adaptor_reduces(DataType type, RedOp op);
/// A vendor's runtime, of the first vendor unless given. Null without a GPU. HETCCL_TEST_GPU=1,
/// which tools/gpu-test sets, makes that a failure.
std::shared_ptr<const device::gpu::Api> runtime(const std::string& vendor = vendors().front());
/// Returns how many GPUs there are.
int count();
/// Returns whether the tests of all devices run on GPUs only.
bool wanted();
/// The first vendor's. NVRTC: HETCCL_TEST_NVRTC, the tree's own .venv, or as hetccl finds it; null
/// without one.
std::shared_ptr<const device::kernels::Compiler> compiler();

/// Device `index` over `api`, by default the machine's; fails the test when it cannot be opened.
std::unique_ptr<device::GpuDevice> open(int index = 0,
                                        std::shared_ptr<const device::gpu::Api> api = nullptr,
                                        int64_t blocks = 0);

/// Copy between the host and the device's memory, and wait.
void upload(device::Device& device, void* memory, const void* host, size_t bytes);
void download(device::Device& device, void* host, const void* memory, size_t bytes);
/// Waits for a stream; false after twenty seconds.
[[nodiscard]] bool drain(device::Device& device, device::Stream& stream);

}  // namespace hetccl::gpu_tests
