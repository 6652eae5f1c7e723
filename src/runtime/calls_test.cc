// Every entry calls the vendor's function of its row, with the vendor's numbers.
#include "runtime/calls.h"

#include <set>

#include "runtime/testing.h"

namespace hetccl::runtime {
namespace {

const std::array kPlatforms = {"cuda", "hip"};

template <typename Handle>
Handle handle(uintptr_t number) {
  return reinterpret_cast<Handle>(number);
}

void* const kMemory = handle<void*>(0x1000);
void* const kOther = handle<void*>(0x2000);
void* const kStream = handle<void*>(0x3000);
const auto kEvent = handle<hetcclRuntimeEvent_t>(0x4000);
const auto kGraph = handle<hetcclRuntimeGraph_t>(0x5000);
const auto kExec = handle<hetcclRuntimeGraphExec_t>(0x6000);

void check_memory(const Fake& fake) {
  const hetcclRuntime& run = *fake.table;
  void* out = nullptr;
  CHECK(run.malloc(&out, 7) == hetcclRuntimeSuccess);
  check_call(fake, "Malloc", &out, 7);
  run.malloc_host(&out, 8);
  check_call(fake, "MallocHost", &out, 8);
  run.malloc_managed(&out, 9, hetcclRuntimeAttachHost);
  check_call(fake, "MallocManaged", &out, 9, 2);
  run.host_alloc(&out, 10, hetcclRuntimeHostMapped);
  check_call(fake, "HostAlloc", &out, 10, 2);
  run.free(kMemory);
  check_call(fake, "Free", kMemory);
  run.free_host(kMemory);
  check_call(fake, "FreeHost", kMemory);
  run.host_malloc(&out, 11, hetcclRuntimeHostPortable);
  check_call(fake, fake.hip ? "HostMalloc" : "HostAlloc", &out, 11, 1);
  run.host_free(kMemory);
  check_call(fake, fake.hip ? "HostFree" : "FreeHost", kMemory);
  run.memcpy(kMemory, kOther, 12, hetcclRuntimeMemcpyDeviceToHost);
  check_call(fake, "Memcpy", kMemory, kOther, 12, 2);
  run.memcpy_async(kMemory, kOther, 13, hetcclRuntimeMemcpyDefault, kStream);
  check_call(fake, "MemcpyAsync", kMemory, kOther, 13, 4, kStream);
  run.memset(kMemory, 1, 14);
  check_call(fake, "Memset", kMemory, 1, 14);
  run.memset_async(kMemory, 2, 15, kStream);
  check_call(fake, "MemsetAsync", kMemory, 2, 15, kStream);
  hetcclRuntimeIpcMemHandle_t ipc{{5}};
  run.ipc_open_mem_handle(&out, ipc, hetcclRuntimeIpcLazyEnablePeerAccess);
  check_call(fake, "IpcOpenMemHandle", &out, 5, 1);
  run.ipc_close_mem_handle(kMemory);
  check_call(fake, "IpcCloseMemHandle", kMemory);
  run.ipc_get_mem_handle(&ipc, kMemory);
  check_call(fake, "IpcGetMemHandle", &ipc, kMemory);
  run.host_register(kMemory, 16, hetcclRuntimeRegisterMapped);
  check_call(fake, "HostRegister", kMemory, 16, 2);
  run.host_unregister(kMemory);
  check_call(fake, "HostUnregister", kMemory);
  run.host_get_device_pointer(&out, kMemory, 0);
  check_call(fake, "HostGetDevicePointer", &out, kMemory, 0);
}

void check_work(const Fake& fake) {
  const hetcclRuntime& run = *fake.table;
  void* stream = nullptr;
  hetcclRuntimeEvent_t event = nullptr;
  run.stream_create(&stream);
  check_call(fake, "StreamCreate", &stream);
  run.stream_create_with_flags(&stream, hetcclRuntimeStreamNonBlocking);
  check_call(fake, "StreamCreateWithFlags", &stream, 1);
  run.stream_query(kStream);
  check_call(fake, "StreamQuery", kStream);
  run.stream_synchronize(kStream);
  check_call(fake, "StreamSynchronize", kStream);
  run.stream_destroy(kStream);
  check_call(fake, "StreamDestroy", kStream);
  run.event_create(&event);
  check_call(fake, "EventCreate", &event);
  run.event_create_with_flags(&event, hetcclRuntimeEventDisableTiming);
  check_call(fake, "EventCreateWithFlags", &event, 2);
  run.event_query(kEvent);
  check_call(fake, "EventQuery", kEvent);
  run.event_record(kEvent, kStream);
  check_call(fake, "EventRecord", kEvent, kStream);
  run.stream_wait_event(kStream, kEvent, hetcclRuntimeEventWaitExternal);
  check_call(fake, "StreamWaitEvent", kStream, kEvent, 1);
  run.event_destroy(kEvent);
  check_call(fake, "EventDestroy", kEvent);
  float milliseconds = 0;
  run.event_elapsed_time(&milliseconds, kEvent, kEvent);
  check_call(fake, "EventElapsedTime", &milliseconds, kEvent, kEvent);
  const hetcclRuntimeHostFn_t fn = [](void*) {};
  run.launch_host_func(kStream, fn, kMemory);
  check_call(fake, "LaunchHostFunc", kStream, fn, kMemory);
  void* arguments[] = {nullptr};
  run.launch_kernel(kMemory, {2, 3, 4}, {5, 6, 7}, arguments, 17, kStream);
  check_call(fake, "LaunchKernel", kMemory, 3ULL << 32U | 2, 6ULL << 32U | 5, arguments, 17,
             kStream);
  run.func_set_attribute(kMemory, hetcclRuntimeFuncSharedMemoryCarveout, 18);
  check_call(fake, "FuncSetAttribute", kMemory, 9, 18);
}

void check_graphs(const Fake& fake) {
  const hetcclRuntime& run = *fake.table;
  auto mode = hetcclRuntimeCaptureRelaxed;
  run.thread_exchange_stream_capture_mode(&mode);
  check_call(fake, "ThreadExchangeStreamCaptureMode", &mode);
  run.stream_begin_capture(kStream, hetcclRuntimeCaptureThreadLocal);
  check_call(fake, "StreamBeginCapture", kStream, 1);
  hetcclRuntimeGraph_t graph = nullptr;
  run.stream_end_capture(kStream, &graph);
  check_call(fake, "StreamEndCapture", kStream, &graph);
  hetcclRuntimeCaptureStatus_t status{};
  unsigned long long id = 0;
  size_t count = 0;
  const hetcclRuntimeGraphNode_t* dependencies = nullptr;
  run.stream_get_capture_info_v2(kStream, &status, &id, &graph, &dependencies, &count);
  if (fake.hip) {
    check_call(fake, "StreamGetCaptureInfo_v2", kStream, &status, &id, &graph, &dependencies,
               &count);
  } else {  // CUDA 13's
    check_call(fake, "StreamGetCaptureInfo", kStream, &status, &id, &graph, &dependencies, 0,
               &count);
  }
  hetcclRuntimeGraphNode_t node = nullptr;
  const hetcclRuntimeHostNode_t host{};
  run.graph_add_host_node(&node, kGraph, dependencies, 0, &host);
  check_call(fake, "GraphAddHostNode", &node, kGraph, dependencies, 0, &host);
  hetcclRuntimeGraphExec_t exec = nullptr;
  run.graph_instantiate(&exec, kGraph, hetcclRuntimeGraphUpload);
  check_call(fake, "GraphInstantiateWithFlags", &exec, kGraph, 2);
  run.graph_launch(kExec, kStream);
  check_call(fake, "GraphLaunch", kExec, kStream);
  run.graph_exec_destroy(kExec);
  check_call(fake, "GraphExecDestroy", kExec);
  run.graph_destroy(kGraph);
  check_call(fake, "GraphDestroy", kGraph);
}

void check_devices(const Fake& fake) {
  const hetcclRuntime& run = *fake.table;
  hetcclRuntimePlatform_t platform{};
  CHECK(run.get_platform(&platform) == hetcclSuccess);
  CHECK(platform == (fake.hip ? hetcclRuntimePlatformHip : hetcclRuntimePlatformCuda));
  CHECK(run.get_platform(nullptr) == hetcclInvalidArgument);
  int device = 0;
  run.get_device(&device);
  check_call(fake, "GetDevice", &device);
  run.set_device(3);
  check_call(fake, "SetDevice", 3);
  run.get_last_error();
  check_call(fake, "GetLastError");
  int can = 0;
  run.device_can_access_peer(&can, 1, 2);
  check_call(fake, "DeviceCanAccessPeer", &can, 1, 2);
  run.device_enable_peer_access(2, 0);
  check_call(fake, "DeviceEnablePeerAccess", 2, 0);
  int count = 0;
  run.get_device_count(&count);
  CHECK(count == 2);
  char bus_id[16] = "0000:01:00.0";
  run.device_get_pci_bus_id(bus_id, 16, 1);
  check_call(fake, "DeviceGetPCIBusId", +bus_id, 16, 1);
  run.device_get_by_pci_bus_id(&device, bus_id);
  check_call(fake, "DeviceGetByPCIBusId", &device, +bus_id);
  run.device_set_limit(hetcclRuntimeLimitMallocHeapSize, 19);
  check_call(fake, "DeviceSetLimit", 2, 19);
  run.device_synchronize();
  check_call(fake, "DeviceSynchronize");
  run.device_reset();
  check_call(fake, "DeviceReset");
}

TEST_CASE("entries whose arguments go as they are") {
  for (const char* platform : kPlatforms) {
    CAPTURE(platform);
    const Fake fake = load_fake(platform);
    check_memory(fake);
    check_work(fake);
    check_graphs(fake);
    check_devices(fake);
  }
}

TEST_CASE("flags become the vendor's, or are refused") {
  void* out = nullptr;
  hetcclRuntimeEvent_t event = nullptr;
  for (const char* platform : kPlatforms) {
    CAPTURE(platform);
    const Fake fake = load_fake(platform);
    const hetcclRuntime& run = *fake.table;
    run.host_malloc(&out, 1, hetcclRuntimeHostMapped | hetcclRuntimeHostCoherent);
    check_call(fake, fake.hip ? "HostMalloc" : "HostAlloc", &out, 1, fake.hip ? 0x40000002 : 2);
    run.host_alloc(&out, 1, hetcclRuntimeHostNonCoherent);
    check_call(fake, "HostAlloc", &out, 1, fake.hip ? 0x80000000U : 0U);
    CHECK(run.host_alloc(&out, 1, 64) == hetcclRuntimeErrorNotSupported);
    CHECK(run.host_malloc(&out, 1, 64) == hetcclRuntimeErrorNotSupported);
    run.event_create_with_flags(&event, hetcclRuntimeEventDisableSystemFence);
    check_call(fake, "EventCreateWithFlags", &event, fake.hip ? 0x20000000 : 0);
    CHECK(run.event_create_with_flags(&event, 16) == hetcclRuntimeErrorNotSupported);
    CHECK((run.host_register(kMemory, 1, hetcclRuntimeRegisterReadOnly) == hetcclRuntimeSuccess) ==
          !fake.hip);
    run.host_register(kMemory, 1, hetcclRuntimeRegisterCoarseGrained);
    check_call(fake, "HostRegister", kMemory, 1, fake.hip ? 8 : 0);
  }
}

TEST_CASE("each attribute of a device has the vendor's number, and one that it lacks is refused") {
  for (const char* platform : kPlatforms) {
    const Fake fake = load_fake(platform);
    std::set<uint64_t> numbers;
    for (const Number& row : kAttributes) {
      int value = 0;
      const auto attribute = static_cast<hetcclRuntimeAttribute_t>(row.neutral);
      const auto error = fake.table->device_get_attribute(&value, attribute, 1);
      const int64_t number = fake.hip ? row.hip : row.cuda;
      CHECK((error == hetcclRuntimeSuccess) == (number != kNone));
      if (number == kNone) continue;
      check_call(fake, "DeviceGetAttribute", &value, number, 1);
      CHECK(numbers.insert(fake.call->arguments[1]).second);
    }
    int value = 0;
    CHECK(fake.table->device_get_attribute(&value, static_cast<hetcclRuntimeAttribute_t>(63), 0) ==
          hetcclRuntimeErrorNotSupported);
    CHECK(!to_vendor<Cuda>(kFuncAttributes, 3));
  }
}

TEST_CASE("errors become neutral, and are the vendor's again for its text") {
  for (const char* platform : kPlatforms) {
    const Fake fake = load_fake(platform);
    const hetcclRuntime& run = *fake.table;
    for (const Number& row : kErrors) {
      const auto number = static_cast<int>(fake.hip ? row.hip : row.cuda);
      fake.answers->error = number;
      CHECK(run.get_last_error() == row.neutral);
      CHECK(std::string(run.get_error_string(static_cast<hetcclRuntimeError_t>(row.neutral))) ==
            "the vendor's text");
      check_call(fake, "GetErrorString", number);
    }
    fake.answers->error = 1052;
    const auto other = run.get_last_error();
    CHECK(other == hetcclRuntimeErrorOther + 1052);
    run.get_error_string(other);
    check_call(fake, "GetErrorString", 1052);
    fake.answers->error = -1;
    CHECK(run.get_last_error() == hetcclRuntimeErrorUnknown);
  }
}

TEST_CASE("structs have the same fields of both vendors") {
  for (const char* platform : kPlatforms) {
    const Fake fake = load_fake(platform);
    const hetcclRuntime& run = *fake.table;
    hetcclRuntimeFuncAttributes_t kernel{};
    CHECK(run.func_get_attributes(&kernel, kMemory) == hetcclRuntimeSuccess);
    CHECK(kernel.shared_bytes == 80);
    CHECK(kernel.constant_bytes == 40);
    CHECK(kernel.local_bytes == 50);
    CHECK(kernel.max_threads_per_block == 256);
    CHECK(kernel.registers == 64);
    CHECK(kernel.binary_version == 3);
    CHECK(kernel.max_dynamic_shared_bytes == 60);
    CHECK(kernel.shared_memory_carveout == -1);
    hetcclRuntimePointerAttributes_t memory{};
    CHECK(run.pointer_get_attributes(&memory, kMemory) == hetcclRuntimeSuccess);
    CHECK(memory.type == hetcclRuntimeMemoryDevice);
    CHECK(memory.device == 5);
    CHECK(memory.device_pointer == kMemory);
    CHECK(memory.host_pointer != nullptr);
    hetcclRuntimeDeviceProperties_t device{};
    CHECK(run.get_device_properties(&device, 1) == hetcclRuntimeSuccess);
    CHECK(std::string(device.name) == (fake.hip ? "a GPU of AMD's" : "a GPU of NVIDIA's"));
    CHECK(std::string(device.architecture) ==
          (fake.hip ? "gfx942:sramecc+:xnack-" : "sm_10751076"));  // 1000 + the attribute
    CHECK(device.total_memory == size_t{1} << 36U);
    CHECK(device.warp_size == (fake.hip ? 1087 : 1010));
    CHECK(device.ecc_enabled == (fake.hip ? 1000 : 1032));
    fake.answers->error = 101;
    CHECK(run.get_device_properties(&device, 9) == hetcclRuntimeErrorInvalidDevice);
    CHECK(run.get_device_properties(nullptr, 0) == hetcclRuntimeErrorInvalidValue);
    CHECK(run.func_get_attributes(nullptr, kMemory) == hetcclRuntimeErrorInvalidValue);
    CHECK(run.pointer_get_attributes(nullptr, kMemory) == hetcclRuntimeErrorInvalidValue);
  }
}

TEST_CASE("what AMD alone has") {
  const Fake fake = load_fake("hip");
  const hetcclRuntime& run = *fake.table;
  void* out = nullptr;
  for (int kind = 0; kind <= hetcclRuntimeExtMallocContiguous; ++kind) {
    run.ext_malloc_with_flags(&out, 20, static_cast<hetcclRuntimeExtMalloc_t>(kind));
    check_call(fake, "ExtMallocWithFlags", &out, 20, kind);
  }
  CHECK(run.ext_malloc_with_flags(&out, 1, static_cast<hetcclRuntimeExtMalloc_t>(7)) ==
        hetcclRuntimeErrorNotSupported);
  void* arguments[] = {nullptr};
  run.ext_launch_kernel(kMemory, {2, 1, 1}, {3, 1, 1}, arguments, 21, kStream, kEvent, nullptr, 1);
  check_call(fake, "ExtLaunchKernel", kMemory, 1ULL << 32U | 2, 1ULL << 32U | 3, arguments, 21,
             kStream, kEvent, 0, 1);
  const uint32_t mask = 0xff;
  run.ext_stream_create_with_cu_mask(&out, 1, &mask);
  check_call(fake, "ExtStreamCreateWithCUMask", &out, 1, &mask);
  uint32_t type = 0, hops = 0;
  run.ext_get_link_type_and_hop_count(0, 1, &type, &hops);
  check_call(fake, "ExtGetLinkTypeAndHopCount", 0, 1, &type, &hops);
}

}  // namespace
}  // namespace hetccl::runtime
