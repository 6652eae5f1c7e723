// The table of hetccl/runtime.h on a GPU: what its entries do, seen in memory, streams and graphs.
// Skipped, loudly, where no runtime shows one.
#include <doctest/doctest.h>

#include <cstdio>
#include <string>
#include <vector>

#include "gpu/gpu.h"
#include "runtime/load.h"

using namespace hetccl;

namespace {

constexpr size_t kBytes = size_t{1} << 20U;

const hetcclRuntime* table() {
  const auto loaded = runtime::load({}, {});
  if (loaded.ok()) return loaded.value();
  if (gpu_tests::wanted()) FAIL("a runtime is wanted: " << loaded.status().message());
  std::printf("SKIPPED: %s\n", loaded.status().message().c_str());
  return nullptr;
}

// Fails the test with the vendor's text.
void ok(const hetcclRuntime& run, hetcclRuntimeError_t error) {
  CHECK_MESSAGE(error == hetcclRuntimeSuccess, run.get_error_string(error));
}

void count_call(void* context) {
  ++*static_cast<int*>(context);
}

}  // namespace

TEST_CASE("devices and their attributes") {
  const hetcclRuntime* found = table();
  if (found == nullptr) return;
  const hetcclRuntime& run = *found;
  int device = -1, back = -1, refused = 0;
  ok(run, run.set_device(0));
  ok(run, run.get_device(&device));
  CHECK(device == 0);
  hetcclRuntimeDeviceProperties_t properties;
  ok(run, run.get_device_properties(&properties, 0));
  std::printf("%s, version %s: %s, %s, %zu MiB, %d multiprocessors\n", run.path, run.version_text,
              properties.name, properties.architecture, properties.total_memory >> 20U,
              properties.multiprocessors);
  CHECK(properties.multiprocessors > 0);
  CHECK((properties.warp_size == 32 || properties.warp_size == 64));
  for (const auto& row : runtime::kAttributes) {
    int value = 0;
    const auto error =
        run.device_get_attribute(&value, static_cast<hetcclRuntimeAttribute_t>(row.neutral), 0);
    if (error == hetcclRuntimeErrorNotSupported) ++refused;
    CHECK((error == hetcclRuntimeSuccess || error == hetcclRuntimeErrorNotSupported));
  }
  CHECK(refused <= 5);
  char bus_id[32];
  ok(run, run.device_get_pci_bus_id(bus_id, sizeof bus_id, 0));
  ok(run, run.device_get_by_pci_bus_id(&back, bus_id));
  CHECK(back == 0);
  CHECK(run.set_device(99) == hetcclRuntimeErrorInvalidDevice);
  CHECK(run.get_last_error() == hetcclRuntimeErrorInvalidDevice);
  CHECK(run.get_last_error() == hetcclRuntimeSuccess);
}

TEST_CASE("memory of every kind, and what the runtime knows of it") {
  const hetcclRuntime* found = table();
  if (found == nullptr) return;
  const hetcclRuntime& run = *found;
  void *device = nullptr, *host = nullptr, *mapped = nullptr, *seen = nullptr, *managed = nullptr;
  ok(run, run.malloc(&device, kBytes));
  ok(run, run.malloc_host(&host, kBytes));
  ok(run, run.host_malloc(&mapped, kBytes, hetcclRuntimeHostMapped | hetcclRuntimeHostCoherent));
  ok(run, run.malloc_managed(&managed, kBytes, hetcclRuntimeAttachGlobal));
  ok(run, run.host_get_device_pointer(&seen, mapped, 0));
  ok(run, run.memset(device, 7, kBytes));
  ok(run, run.memcpy(host, device, kBytes, hetcclRuntimeMemcpyDeviceToHost));
  CHECK(static_cast<char*>(host)[kBytes - 1] == 7);
  hetcclRuntimePointerAttributes_t attributes;
  ok(run, run.pointer_get_attributes(&attributes, device));
  CHECK(attributes.type == hetcclRuntimeMemoryDevice);
  CHECK(attributes.device_pointer == device);
  ok(run, run.pointer_get_attributes(&attributes, host));
  CHECK(attributes.type == hetcclRuntimeMemoryHost);
  ok(run, run.pointer_get_attributes(&attributes, managed));
  CHECK(attributes.type == hetcclRuntimeMemoryManaged);
  hetcclRuntimeIpcMemHandle_t handle;
  ok(run, run.ipc_get_mem_handle(&handle, device));
  std::vector<char> user(kBytes);
  ok(run, run.host_register(user.data(), kBytes, hetcclRuntimeRegisterPortable));
  CHECK(run.host_register(user.data(), kBytes, 0) == hetcclRuntimeErrorHostMemoryAlreadyRegistered);
  run.get_last_error();
  ok(run, run.host_unregister(user.data()));
  ok(run, run.free(device));
  ok(run, run.free_host(host));
  ok(run, run.host_free(mapped));
  ok(run, run.free(managed));
}

TEST_CASE("streams, events, host functions and graphs") {
  const hetcclRuntime* found = table();
  if (found == nullptr) return;
  const hetcclRuntime& run = *found;
  void *stream = nullptr, *other = nullptr, *device = nullptr, *host = nullptr;
  ok(run, run.stream_create_with_flags(&stream, hetcclRuntimeStreamNonBlocking));
  ok(run, run.stream_create(&other));
  ok(run, run.malloc(&device, kBytes));
  ok(run, run.malloc_host(&host, kBytes));
  hetcclRuntimeEvent_t start = nullptr, stop = nullptr;
  ok(run, run.event_create(&start));
  ok(run, run.event_create(&stop));
  ok(run, run.event_record(start, stream));
  ok(run, run.memset_async(device, 9, kBytes, stream));
  ok(run, run.memcpy_async(host, device, kBytes, hetcclRuntimeMemcpyDefault, stream));
  ok(run, run.event_record(stop, stream));
  ok(run, run.stream_wait_event(other, stop, hetcclRuntimeEventWaitDefault));
  int calls = 0;
  ok(run, run.launch_host_func(other, count_call, &calls));
  ok(run, run.stream_synchronize(other));
  CHECK(calls == 1);
  CHECK(static_cast<char*>(host)[5] == 9);
  float milliseconds = -1;
  ok(run, run.event_elapsed_time(&milliseconds, start, stop));
  CHECK(milliseconds > 0);

  ok(run, run.stream_begin_capture(stream, hetcclRuntimeCaptureThreadLocal));
  ok(run, run.memset_async(device, 11, kBytes, stream));
  hetcclRuntimeCaptureStatus_t status{};
  unsigned long long id = 0;
  hetcclRuntimeGraph_t graph = nullptr;
  const hetcclRuntimeGraphNode_t* dependencies = nullptr;
  size_t count = 0;
  ok(run, run.stream_get_capture_info_v2(stream, &status, &id, &graph, &dependencies, &count));
  CHECK(status == hetcclRuntimeCaptureActive);
  CHECK(count == 1);
  const hetcclRuntimeHostNode_t node{count_call, &calls};
  hetcclRuntimeGraphNode_t added = nullptr;
  ok(run, run.graph_add_host_node(&added, graph, dependencies, count, &node));
  ok(run, run.stream_end_capture(stream, &graph));
  hetcclRuntimeGraphExec_t exec = nullptr;
  ok(run, run.graph_instantiate(&exec, graph, 0));
  ok(run, run.graph_launch(exec, stream));
  ok(run, run.stream_synchronize(stream));
  CHECK(calls == 2);
  ok(run, run.memcpy(host, device, kBytes, hetcclRuntimeMemcpyDeviceToHost));
  CHECK(static_cast<char*>(host)[kBytes / 2] == 11);
  ok(run, run.graph_exec_destroy(exec));
  ok(run, run.graph_destroy(graph));
  ok(run, run.event_destroy(start));
  ok(run, run.event_destroy(stop));
  ok(run, run.stream_destroy(stream));
  ok(run, run.stream_destroy(other));
  ok(run, run.free(device));
  ok(run, run.free_host(host));
}
