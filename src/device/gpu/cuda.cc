// CUDA's driver as an Api. The few types are declared here: the driver's ABI is stable, and changed
// calls have a suffix ("_v2").
#include <array>

#include "device/gpu/api.h"
#include "device/gpu/cuda_pointers.h"

namespace hetccl::device::gpu {
namespace {

// Constants of cuda.h.
constexpr unsigned kStreamNonBlocking = 1, kEventDisableTiming = 2;
constexpr unsigned kHostPortable = 1, kHostDeviceMap = 2;
constexpr unsigned kWaitGeq = 0, kWriteDefault = 0;
constexpr int kMultiprocessors = 16, kMajor = 75, kMinor = 76;
constexpr int kWritesOrdering = 118;
constexpr int kOrderedForOwner = 100;  // the owner's work sees what a NIC has written
constexpr int kDmaBufHandle = 1;

// The driver's device addresses are 64-bit integers, which are the same as pointers to callers.
static_assert(sizeof(void*) == sizeof(uint64_t));

// Driver calls whose signature differs from the table's.
struct Driver {
  std::function<int(unsigned)> init;
  std::function<int(int*)> version;
  std::function<int(int, const char**)> error_text;
  std::function<int(int*, int, int)> attribute;
  std::function<int(void**, size_t, unsigned)> allocate_pinned;
  std::function<int(void*, size_t, unsigned)> pin;
  std::function<int(void**, unsigned)> create_stream, create_event;
  std::function<int(void*, void*, unsigned)> wait;
  std::function<int(void*, void*, uint32_t, unsigned)> wait_word, write_word;
  std::function<int(void**, void*, const char*)> get_function;
  std::function<int(void*)> load_function;
  std::function<int(int* mode)> exchange_capture_mode;
  CudaPointerAttributes pointer_attributes = nullptr;
  std::function<int(int* fd, void* pages, size_t bytes, int kind, uint64_t flags)> export_range;
  std::function<int(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                    void*, void**, void**)>
      launch;
};

void find_all(Symbols& symbols, Driver& driver, Api& api) {
  symbols.find(driver.init, "cuInit");
  symbols.find(driver.version, "cuDriverGetVersion");
  symbols.find(driver.error_text, "cuGetErrorString");
  symbols.find(driver.attribute, "cuDeviceGetAttribute");
  symbols.find(driver.allocate_pinned, "cuMemHostAlloc");
  symbols.find(driver.pin, "cuMemHostRegister_v2");
  symbols.find(driver.create_stream, "cuStreamCreate");
  symbols.find(driver.create_event, "cuEventCreate");
  symbols.find(driver.wait, "cuStreamWaitEvent");
  symbols.find(driver.get_function, "cuModuleGetFunction");
  symbols.find(driver.launch, "cuLaunchKernel");
  symbols.find(driver.exchange_capture_mode, "cuThreadExchangeStreamCaptureMode");
  symbols.optional(driver.load_function, "cuFuncLoad");
  symbols.optional(driver.wait_word, "cuStreamWaitValue32_v2");
  if (!driver.wait_word) symbols.optional(driver.wait_word, "cuStreamWaitValue32");
  symbols.optional(driver.write_word, "cuStreamWriteValue32_v2");
  if (!driver.write_word) symbols.optional(driver.write_word, "cuStreamWriteValue32");
  symbols.find(driver.pointer_attributes, "cuPointerGetAttributes");
  symbols.optional(driver.export_range, "cuMemGetHandleForAddressRange");
  symbols.find(api.device_count, "cuDeviceGetCount");
  symbols.find(api.device_name, "cuDeviceGetName");
  symbols.find(api.device_bus_id, "cuDeviceGetPCIBusId");
  symbols.find(api.retain_context, "cuDevicePrimaryCtxRetain");
  symbols.find(api.release_context, "cuDevicePrimaryCtxRelease_v2");
  symbols.find(api.get_context, "cuCtxGetCurrent");
  symbols.find(api.set_context, "cuCtxSetCurrent");
  symbols.find(api.current_device, "cuCtxGetDevice");
  symbols.find(api.allocate, "cuMemAlloc_v2");
  symbols.find(api.free, "cuMemFree_v2");
  symbols.find(api.free_pinned, "cuMemFreeHost");
  symbols.find(api.unpin, "cuMemHostUnregister");
  symbols.find(api.destroy_stream, "cuStreamDestroy_v2");
  symbols.find(api.is_capturing, "cuStreamIsCapturing");
  symbols.find(api.destroy_event, "cuEventDestroy_v2");
  symbols.find(api.record, "cuEventRecord");
  symbols.find(api.copy, "cuMemcpyAsync");
  symbols.find(api.call_host, "cuLaunchHostFunc");
  symbols.find(api.load_module, "cuModuleLoadData");
  symbols.find(api.unload_module, "cuModuleUnload");
}

void adapt_devices(const Driver& driver, Api& api) {
  api.error_text = [call = driver.error_text](int code) {
    const char* text = nullptr;
    return call(code, &text) == 0 && text != nullptr ? text : "unknown error";
  };
  api.device_architecture = [call = driver.attribute](std::string* architecture, int device) {
    int major = 0, minor = 0;
    int code = call(&major, kMajor, device);
    if (code == 0) code = call(&minor, kMinor, device);
    *architecture = format("sm_%d%d", major, minor);
    return code;
  };
  api.device_multiprocessors = [call = driver.attribute](int* count, int device) {
    return call(count, kMultiprocessors, device);
  };
}

void adapt_sharing(const Driver& driver, Api& api) {
  api.find_mapping = [call = driver.pointer_attributes](const void* address, Mapping* mapping) {
    return find_cuda_mapping(call, address, mapping);
  };
  if (driver.export_range) {
    api.export_pages = [call = driver.export_range](void* pages, size_t bytes, int* fd,
                                                    size_t* offset) {
      *offset = 0;
      return call(fd, pages, bytes, kDmaBufHandle, 0);
    };
  }
  api.needs_flush = [call = driver.attribute](bool* needs, int device) {
    int ordering = 0;
    const int code = call(&ordering, kWritesOrdering, device);
    *needs = code != 0 || ordering < kOrderedForOwner;
    return code;
  };
}

void adapt_work(const Driver& driver, Api& api) {
  api.allocate_pinned = [call = driver.allocate_pinned](void** memory, size_t bytes) {
    return call(memory, bytes, kHostPortable | kHostDeviceMap);
  };
  api.pin = [call = driver.pin](void* memory, size_t bytes) {
    return call(memory, bytes, kHostPortable | kHostDeviceMap);
  };
  api.create_stream = [call = driver.create_stream](void** stream) {
    return call(stream, kStreamNonBlocking);
  };
  api.create_event = [call = driver.create_event](void** event) {
    return call(event, kEventDisableTiming);
  };
  api.wait = [call = driver.wait](void* stream, void* event) { return call(stream, event, 0); };
  if (driver.wait_word && driver.write_word) {
    api.wait_word = [call = driver.wait_word](void* stream, void* word, uint32_t value) {
      return call(stream, word, value, kWaitGeq);
    };
    api.write_word = [call = driver.write_word](void* stream, void* word, uint32_t value) {
      return call(stream, word, value, kWriteDefault);
    };
  }
  // With CUDA_MODULE_LOADING=LAZY, the default, a kernel is loaded when it is first asked for.
  api.find_kernel = [get = driver.get_function, load = driver.load_function](
                        void** kernel, void* module, const char* name) {
    const int code = get(kernel, module, name);
    return code == 0 && load ? load(*kernel) : code;
  };
  api.launch = [call = driver.launch](void* kernel, unsigned blocks, unsigned threads, void* stream,
                                      void** arguments) {
    return call(kernel, blocks, 1, 1, threads, 1, 1, 0, stream, arguments, nullptr);
  };
}

}  // namespace

Result<std::shared_ptr<const Api>> load_cuda() {
  const std::array<std::string, 1> names = {"libcuda.so.1"};
  auto library = DynLib::open(names);
  if (!library.ok()) {
    return error(ErrorCode::Unsupported, "no CUDA driver: %s", library.status().message().c_str());
  }
  auto api = std::make_shared<Api>();
  Driver driver;
  Symbols symbols(*library);
  find_all(symbols, driver, *api);
  if (!symbols.missing().empty()) {
    return error(ErrorCode::Unsupported, "the CUDA driver %s is too old: it lacks %s",
                 library->path().c_str(), symbols.missing().c_str());
  }
  adapt_devices(driver, *api);
  adapt_work(driver, *api);
  adapt_sharing(driver, *api);
  api->memory_owner = memory_owner_by(driver.pointer_attributes);
  set_apart_from_graphs(*api, driver.exchange_capture_mode);
  api->vendor = "cuda";
  api->path = library->path();
  const auto failed = [&](const char* what, int code) {
    return error(ErrorCode::Unsupported, "the CUDA driver %s: %s: %s", api->path.c_str(), what,
                 api->error_text(code));
  };
  library->stay_loaded();
  if (const int code = driver.init(0); code != 0) return failed("cuInit", code);
  int version = 0, devices = 0;
  if (const int code = driver.version(&version); code != 0) return failed("its version", code);
  if (const int code = api->device_count(&devices); code != 0) return failed("its devices", code);
  if (devices == 0) {
    return error(ErrorCode::Unsupported, "the CUDA driver %s shows no GPU", api->path.c_str());
  }
  api->version = format("%d.%d", version / 1000, version % 1000 / 10);
  api->libraries.push_back(std::move(*library));
  return std::shared_ptr<const Api>(std::move(api));
}

}  // namespace hetccl::device::gpu
