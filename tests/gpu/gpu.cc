#include "gpu/gpu.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <map>
#include <mutex>
#include <sstream>
#include <stdexcept>
#include <thread>

#include "base/clock.h"
#include "fake/patience.h"

namespace hetccl::gpu_tests {
namespace {

namespace fs = std::filesystem;
using namespace device;

constexpr auto kDeadline = fake::kHang;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

Config config() {
  auto read = Config::from_environment();
  REQUIRE(read.ok());
  return std::move(read).value();
}

Result<std::shared_ptr<const gpu::Api>> load(const std::string& vendor) {
  // Some tests have two ranks on one GPU in this process, whose streams must not share a queue.
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  auto api = row_of(vendor).load_runtime(config());
  int devices = 0;
  if (api.ok()) api.value()->device_count(&devices);
  // So that contexts are not made anew for every device that a test opens.
  void* context = nullptr;
  for (int i = 0; i < devices; ++i) api.value()->retain_context(&context, i);
  return api;
}

// The place where tools/setup has put the wheel, and where tools/gpu-test finds torch's.
std::string wheel() {
  std::error_code failure;
  for (const auto& entry : fs::directory_iterator(HETCCL_SOURCE_DIR "/.venv/lib", failure)) {
    const fs::path path = entry.path() / "site-packages/nvidia/cu13/lib/libnvrtc.so.13";
    if (fs::exists(path, failure)) return path;
  }
  return "";
}

// Pinned memory of the device's pool.
class Staging {
 public:
  Staging(Device& device, size_t bytes) : device_(device) {
    auto made = device.allocate_pinned(bytes);
    REQUIRE(made.ok());
    memory_ = made.value();
  }
  ~Staging() { device_.free_pinned(memory_); }
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;
  [[nodiscard]] void* memory() const { return memory_; }

 private:
  Device& device_;
  void* memory_ = nullptr;
};

void copy_and_wait(Device& device, void* dst, const void* src, size_t bytes) {
  auto stream = device.create_stream();
  REQUIRE(stream.ok());
  REQUIRE(device.copy(**stream, dst, src, bytes).ok());
  REQUIRE(drain(device, **stream));
}

}  // namespace

bool wanted() {
  return variable("HETCCL_TEST_GPU") == "1";
}

const std::vector<std::string>& vendors() {
  static const auto all = [] {
    std::istringstream text(variable("HETCCL_TEST_VENDORS"));
    std::vector<std::string> names(std::istream_iterator<std::string>(text), {});
    if (names.empty()) names.emplace_back("cuda");
    return names;
  }();
  return all;
}

const comm::GpuRow& row_of(const std::string& vendor) {
  static const comm::Adaptors adaptors = comm::with_devices(
      comm::all_adaptors(), adaptor::find(config().adaptors, comm::names_of(comm::all_adaptors())));
  for (const comm::GpuRow& row : adaptors.gpus)
    if (row.vendor == vendor) return row;
  throw std::invalid_argument("HETCCL_TEST_VENDORS: no " + vendor);
}

bool adaptor_reduces(DataType type, RedOp op) {
  const bool adaptors = std::any_of(vendors().begin(), vendors().end(), [](const auto& vendor) {
    return !row_of(vendor).load_compiler;
  });
  const bool is_float = type == DataType::Float32 || type == DataType::Float64;
  const bool is_fp8 = type == DataType::Float8E4m3 || type == DataType::Float8E5m2;
  return !adaptors || (!is_fp8 && op != RedOp::PreMulSum && (op != RedOp::Avg || is_float));
}

std::shared_ptr<const gpu::Api> runtime(const std::string& vendor) {
  static std::map<std::string, Result<std::shared_ptr<const gpu::Api>>> runtimes;
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  if (!runtimes.contains(vendor)) runtimes.emplace(vendor, load(vendor));
  const auto& loaded = runtimes.at(vendor);
  if (loaded.ok()) return loaded.value();
  if (wanted()) FAIL("a GPU is wanted: " << loaded.status().message());
  MESSAGE("SKIPPED, no GPU here: " << loaded.status().message());
  return nullptr;
}

int count() {
  int devices = 0;
  const auto api = runtime();
  if (api != nullptr) api->device_count(&devices);
  return devices;
}

std::shared_ptr<const kernels::Compiler> compiler() {
  if (!row_of(vendors().front()).load_compiler) return nullptr;  // an adaptor's device
  static const auto loaded = [] {
    if (vendors().front() != "cuda") return row_of(vendors().front()).load_compiler(config());
    const std::string given = variable("HETCCL_TEST_NVRTC");
    return kernels::load_nvrtc(!given.empty() ? given : wheel());
  }();
  if (loaded.ok()) return loaded.value();
  if (wanted()) FAIL("a compiler is wanted: " << loaded.status().message());
  MESSAGE("SKIPPED, no compiler here: " << loaded.status().message());
  return nullptr;
}

std::unique_ptr<GpuDevice> open(int index, std::shared_ptr<const gpu::Api> api, int64_t blocks) {
  GpuOptions options;
  options.index = index;
  options.blocks = blocks;
  options.compiler = compiler();
  // One for all test programs, so that they compile once.
  options.cache = fs::temp_directory_path() / "hetccl-test-kernels";
  auto made = make_gpu_device(api != nullptr ? std::move(api) : runtime(), options);
  if (!made.ok()) FAIL(made.status().message());
  return std::move(made).value();
}

void upload(Device& device, void* memory, const void* host, size_t bytes) {
  if (bytes == 0) return;
  const Staging pinned(device, bytes);
  std::memcpy(pinned.memory(), host, bytes);
  copy_and_wait(device, memory, pinned.memory(), bytes);
}

void download(Device& device, void* host, const void* memory, size_t bytes) {
  if (bytes == 0) return;
  const Staging pinned(device, bytes);
  copy_and_wait(device, pinned.memory(), memory, bytes);
  std::memcpy(host, pinned.memory(), bytes);
}

// A stream that does not drain keeps the flag: it may yet be written.
bool drain(Device& device, Stream& stream) {
  auto made = device.allocate_pinned(sizeof(Flag));
  if (!made.ok()) return false;
  auto* flag = static_cast<Flag*>(made.value());
  if (!device.write_flag(stream, *flag, 1).ok()) return false;
  const TimePoint end = steady_clock().now() + kDeadline;
  while (!flag->reached(1)) {
    if (steady_clock().now() > end) return false;
    std::this_thread::yield();
  }
  device.free_pinned(flag);
  return true;
}

}  // namespace hetccl::gpu_tests
