// HIP's runtime as an Api. The few types and numbers are declared here, because AMD's header cannot
// be included next to CUDA's. tests/amd compares them with it.
#include "device/gpu/hip.h"

#include <array>
#include <cstring>

#include "base/hip_version.h"
#include "device/gpu/api.h"
#include "device/gpu/in_process.h"

namespace hetccl::device::gpu {
namespace {

// Runtime calls whose signature differs from the table's.
struct Runtime {
  std::function<int(unsigned)> init;
  std::function<int(int*)> version;
  std::function<int(int*, int attribute, int device)> attribute;
  std::function<int(void* properties, int device)> properties;
  std::function<int(int)> set_device;
  std::function<int(void**, size_t, unsigned)> allocate_pinned;
  std::function<int(void*, size_t, unsigned)> pin;
  std::function<int(void** device, void* host, unsigned)> device_address;
  int (*pointer_attributes)(hip::PointerAttributes*, const void*) = nullptr;
  int (*peek_error)() = nullptr;
  int (*take_error)() = nullptr;
  std::function<int(void**, unsigned)> create_stream, create_event;
  std::function<int(void*, void*, unsigned)> wait;
  std::function<int(void*, const void*, size_t, int kind, void* stream)> copy;
  std::function<int(int* mode)> exchange_capture_mode;
  std::function<int(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                    void*, void**, void**)>
      launch;
};

void find_all(Symbols& symbols, Runtime& runtime, Api& api) {
  symbols.find(runtime.init, "hipInit");
  symbols.find(runtime.version, "hipRuntimeGetVersion");
  symbols.find(runtime.attribute, "hipDeviceGetAttribute");
  symbols.find(runtime.properties, "hipGetDevicePropertiesR0600");
  symbols.find(api.current_device, "hipGetDevice");
  symbols.find(runtime.set_device, "hipSetDevice");
  symbols.find(runtime.allocate_pinned, "hipHostMalloc");
  symbols.find(runtime.pin, "hipHostRegister");
  symbols.find(runtime.device_address, "hipHostGetDevicePointer");
  symbols.find(api.unpin, "hipHostUnregister");
  symbols.find(runtime.pointer_attributes, "hipPointerGetAttributes");
  symbols.find(runtime.peek_error, "hipPeekAtLastError");
  symbols.find(runtime.take_error, "hipGetLastError");
  symbols.find(runtime.create_stream, "hipStreamCreateWithFlags");
  symbols.find(runtime.create_event, "hipEventCreateWithFlags");
  symbols.find(runtime.wait, "hipStreamWaitEvent");
  symbols.find(runtime.copy, "hipMemcpyAsync");
  symbols.find(runtime.exchange_capture_mode, "hipThreadExchangeStreamCaptureMode");
  symbols.find(runtime.launch, "hipModuleLaunchKernel");
  symbols.find(api.error_text, "hipGetErrorString");
  symbols.find(api.device_count, "hipGetDeviceCount");
  symbols.find(api.device_name, "hipDeviceGetName");
  symbols.find(api.device_bus_id, "hipDeviceGetPCIBusId");
  symbols.find(api.allocate, "hipMalloc");
  symbols.find(api.free, "hipFree");
  symbols.find(api.free_pinned, "hipHostFree");
  symbols.find(api.destroy_stream, "hipStreamDestroy");
  symbols.find(api.is_capturing, "hipStreamIsCapturing");
  symbols.find(api.destroy_event, "hipEventDestroy");
  symbols.find(api.record, "hipEventRecord");
  symbols.find(api.call_host, "hipLaunchHostFunc");
  symbols.find(api.load_module, "hipModuleLoadData");
  symbols.find(api.unload_module, "hipModuleUnload");
  symbols.find(api.find_kernel, "hipModuleGetFunction");
}

void adapt_devices(const Runtime& runtime, Api& api) {
  api.device_architecture = [call = runtime.properties](std::string* architecture, int device) {
    alignas(16) std::array<char, hip::kPropertiesRoom> properties{};
    const int code = call(properties.data(), device);
    const char* name = properties.data() + hip::kArchitectureOffset;
    architecture->assign(name, strnlen(name, hip::kArchitectureBytes));
    return code;
  };
  api.device_multiprocessors = [call = runtime.attribute](int* count, int device) {
    return call(count, hip::kMultiprocessors, device);
  };
}

// HIP threads have a current device but no context, so the handle is the device's number plus one.
void* handle_of(int device) {
  return reinterpret_cast<void*>(static_cast<intptr_t>(device) + 1);
}

void adapt_contexts(const Runtime& runtime, Api& api) {
  api.retain_context = [count = api.device_count](void** context, int device) {
    int devices = 0;
    const int code = count(&devices);
    if (code == 0 && device >= devices) return hip::kInvalidDevice;
    *context = handle_of(device);
    return code;
  };
  api.release_context = [](int) { return 0; };
  api.get_context = [get = api.current_device](void** context) {
    int device = 0;
    const int code = get(&device);
    *context = code == 0 ? handle_of(device) : nullptr;
    return code;
  };
  api.set_context = [set = runtime.set_device](void* context) {
    if (context == nullptr) return 0;
    return set(static_cast<int>(reinterpret_cast<intptr_t>(context) - 1));
  };
}

void adapt_memory(const Runtime& runtime, Api& api) {
  // Uncached: devices cache other memory, and would miss the host's writes.
  api.allocate_pinned = [call = runtime.allocate_pinned](void** memory, size_t bytes) {
    return call(memory, bytes, hip::kHostPortable | hip::kHostMapped | hip::kHostCoherent);
  };
  // Refuses devices that do not see registered memory at the host's address.
  api.pin = [pin = runtime.pin, unpin = api.unpin, address = runtime.device_address](void* memory,
                                                                                     size_t bytes) {
    int code = pin(memory, bytes, hip::kRegisterPortable | hip::kRegisterMapped);
    if (code != 0) return code;
    void* seen = nullptr;
    code = address(&seen, memory, 0);
    if (code == 0 && seen == memory) return 0;
    unpin(memory);
    return code != 0 ? code : hip::kNotSupported;
  };
  api.memory_owner =
      memory_owner_by(runtime.pointer_attributes, runtime.peek_error, runtime.take_error);
}

void adapt_work(const Runtime& runtime, Api& api) {
  api.create_stream = [call = runtime.create_stream](void** stream) {
    return call(stream, hip::kStreamNonBlocking);
  };
  api.create_event = [call = runtime.create_event](void** event) {
    return call(event, hip::kEventDisableTiming);
  };
  api.wait = [call = runtime.wait](void* stream, void* event) { return call(stream, event, 0); };
  api.copy = [call = runtime.copy](void* dst, const void* src, size_t bytes, void* stream) {
    return call(dst, src, bytes, hip::kCopyDefault, stream);
  };
  api.launch = [call = runtime.launch](void* kernel, unsigned blocks, unsigned threads,
                                       void* stream, void** arguments) {
    return call(kernel, blocks, 1, 1, threads, 1, 1, 0, stream, arguments, nullptr);
  };
  // wait_word and write_word stay empty: hipStreamWaitValue32 compares plain values, not cyclically
  // as flags are compared, and is documented for signal memory only.
}

std::vector<std::string> names_of(const std::string& path) {
  if (!path.empty()) return {path};
  std::vector<std::string> names = loaded_libraries("libamdhip64.so");
  for (const char* name : {"libamdhip64.so.7", "libamdhip64.so.6", "/opt/rocm/lib/libamdhip64.so"})
    names.emplace_back(name);
  return names;
}

}  // namespace

Result<std::shared_ptr<const Api>> load_hip(const std::string& path) {
  auto library = DynLib::open(names_of(path));
  if (!library.ok()) {
    return error(ErrorCode::Unsupported, "no HIP runtime: %s", library.status().message().c_str());
  }
  auto api = std::make_shared<Api>();
  Runtime runtime;
  Symbols symbols(*library);
  find_all(symbols, runtime, *api);
  library->stay_loaded();
  int version = 0, devices = 0;
  if (runtime.version && runtime.version(&version) == 0) {
    HETCCL_TRY(check_hip_version(library->path(), version).with("the HIP runtime"));
  }
  if (!symbols.missing().empty()) {
    return error(ErrorCode::Unsupported, "the HIP runtime %s is too old, or none: it lacks %s",
                 library->path().c_str(), symbols.missing().c_str());
  }
  adapt_devices(runtime, *api);
  adapt_contexts(runtime, *api);
  adapt_memory(runtime, *api);
  adapt_work(runtime, *api);
  set_apart_from_graphs(*api, runtime.exchange_capture_mode);
  api->vendor = "hip";
  api->path = library->path();
  const auto failed = [&](const char* what, int code) {
    return error(ErrorCode::Unsupported, "the HIP runtime %s: %s: %s", api->path.c_str(), what,
                 api->error_text(code));
  };
  if (const int code = runtime.init(0); code != 0) return failed("hipInit", code);
  if (const int code = runtime.version(&version); code != 0) return failed("its version", code);
  if (const int code = api->device_count(&devices); code != 0) return failed("its devices", code);
  if (devices == 0) {
    return error(ErrorCode::Unsupported, "the HIP runtime %s shows no GPU", api->path.c_str());
  }
  api->version = hip_version_text(version);
  api->libraries.push_back(std::move(*library));
  return std::shared_ptr<const Api>(std::move(api));
}

}  // namespace hetccl::device::gpu
