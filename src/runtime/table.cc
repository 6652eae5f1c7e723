#include "runtime/table.h"

#include "base/hip_version.h"
#include "runtime/calls.h"

namespace hetccl::runtime {
namespace {

template <typename Vendor>
void fill_memory(hetcclRuntime& table) {
  table.malloc = forward<Vendor, entry("malloc")>;
  table.malloc_host = forward<Vendor, entry("malloc_host")>;
  table.malloc_managed = forward<Vendor, entry("malloc_managed")>;
  table.host_alloc = allocate_host<Vendor, entry("host_alloc")>;
  table.ext_malloc_with_flags = Adapted<Vendor>::ext_malloc_with_flags;
  table.free_host = forward<Vendor, entry("free_host")>;
  table.memcpy = forward<Vendor, entry("memcpy")>;
  table.memcpy_async = forward<Vendor, entry("memcpy_async")>;
  table.free = forward<Vendor, entry("free")>;
  table.memset = forward<Vendor, entry("memset")>;
  table.memset_async = forward<Vendor, entry("memset_async")>;
  table.ipc_open_mem_handle = forward<Vendor, entry("ipc_open_mem_handle")>;
  table.ipc_close_mem_handle = forward<Vendor, entry("ipc_close_mem_handle")>;
  table.ipc_get_mem_handle = forward<Vendor, entry("ipc_get_mem_handle")>;
  table.host_register = Adapted<Vendor>::host_register;
  table.host_unregister = forward<Vendor, entry("host_unregister")>;
  table.host_get_device_pointer = forward<Vendor, entry("host_get_device_pointer")>;
  table.pointer_get_attributes = Adapted<Vendor>::pointer_get_attributes;
  table.host_malloc = allocate_host<Vendor, entry("host_malloc")>;
  table.host_free = forward<Vendor, entry("host_free")>;
}

template <typename Vendor>
void fill_work(hetcclRuntime& table) {
  table.stream_create_with_flags = forward<Vendor, entry("stream_create_with_flags")>;
  table.stream_query = forward<Vendor, entry("stream_query")>;
  table.stream_synchronize = forward<Vendor, entry("stream_synchronize")>;
  table.stream_destroy = forward<Vendor, entry("stream_destroy")>;
  table.event_create = forward<Vendor, entry("event_create")>;
  table.event_create_with_flags = Adapted<Vendor>::event_create_with_flags;
  table.event_query = forward<Vendor, entry("event_query")>;
  table.event_record = forward<Vendor, entry("event_record")>;
  table.stream_wait_event = forward<Vendor, entry("stream_wait_event")>;
  table.event_destroy = forward<Vendor, entry("event_destroy")>;
  table.launch_host_func = forward<Vendor, entry("launch_host_func")>;
  table.func_set_attribute = Adapted<Vendor>::func_set_attribute;
  table.func_get_attributes = Adapted<Vendor>::func_get_attributes;
  table.ext_launch_kernel = forward<Vendor, entry("ext_launch_kernel")>;
  table.launch_kernel = forward<Vendor, entry("launch_kernel")>;
  table.ext_stream_create_with_cu_mask = forward<Vendor, entry("ext_stream_create_with_cu_mask")>;
  table.stream_create = forward<Vendor, entry("stream_create")>;
  table.event_elapsed_time = forward<Vendor, entry("event_elapsed_time")>;
}

template <typename Vendor>
void fill_graphs(hetcclRuntime& table) {
  table.thread_exchange_stream_capture_mode =
      forward<Vendor, entry("thread_exchange_stream_capture_mode")>;
  table.stream_get_capture_info_v2 = Adapted<Vendor>::stream_get_capture_info_v2;
  table.graph_add_host_node = forward<Vendor, entry("graph_add_host_node")>;
  table.graph_instantiate = forward<Vendor, entry("graph_instantiate")>;
  table.graph_launch = forward<Vendor, entry("graph_launch")>;
  table.graph_exec_destroy = forward<Vendor, entry("graph_exec_destroy")>;
  table.graph_destroy = forward<Vendor, entry("graph_destroy")>;
  table.stream_begin_capture = forward<Vendor, entry("stream_begin_capture")>;
  table.stream_end_capture = forward<Vendor, entry("stream_end_capture")>;
}

template <typename Vendor>
void fill_devices(hetcclRuntime& table) {
  table.get_device = forward<Vendor, entry("get_device")>;
  table.set_device = forward<Vendor, entry("set_device")>;
  table.get_error_string = Adapted<Vendor>::get_error_string;
  table.get_last_error = forward<Vendor, entry("get_last_error")>;
  table.device_can_access_peer = forward<Vendor, entry("device_can_access_peer")>;
  table.device_get_attribute = Adapted<Vendor>::device_get_attribute;
  table.device_get_pci_bus_id = forward<Vendor, entry("device_get_pci_bus_id")>;
  table.get_device_properties = Adapted<Vendor>::get_device_properties;
  table.device_get_by_pci_bus_id = forward<Vendor, entry("device_get_by_pci_bus_id")>;
  table.device_enable_peer_access = forward<Vendor, entry("device_enable_peer_access")>;
  table.get_device_count = forward<Vendor, entry("get_device_count")>;
  table.device_set_limit = forward<Vendor, entry("device_set_limit")>;
  table.device_synchronize = forward<Vendor, entry("device_synchronize")>;
  table.device_reset = forward<Vendor, entry("device_reset")>;
  table.ext_get_link_type_and_hop_count = forward<Vendor, entry("ext_get_link_type_and_hop_count")>;
}

/// Sets entries to null whose functions the library lacks.
void remove_missing(hetcclRuntime& table, const std::array<bool, kEntries.size()>& available) {
  for (size_t i = 0; i < kEntries.size(); ++i) {
    void* const nothing = nullptr;
    auto* const slot = reinterpret_cast<char*>(&table) + kEntries[i].slot;
    if (!available[i]) std::memcpy(slot, &nothing, sizeof nothing);
  }
}

/// Finds the functions of a library, and sets in `symbols` the name of each there.
template <typename Vendor>
Functions find_functions(const DynLib& library, SymbolNames& symbols) {
  Functions functions;
  for (size_t i = 0; i < kEntries.size(); ++i) {
    symbols[i] = kEntries[i].*Vendor::kSymbol;
    if (symbols[i] != nullptr) functions.entries[i] = library.symbol(symbols[i]);
  }
  functions.version = library.symbol(Vendor::kVersion);
  return functions;
}

/// Returns major * 1000 + minor * 10; 0 if the library does not tell. Unsupported: HIP before 6.
template <typename Vendor>
Result<int> read_version(const DynLib& library, const Functions& functions) {
  int version = 0;
  auto* const read = reinterpret_cast<int (*)(int*)>(functions.version);
  if (read == nullptr || read(&version) != 0 || version <= 0) return 0;
  if constexpr (Vendor::kPlatform == hetcclRuntimePlatformCuda) return version;
  HETCCL_TRY(check_hip_version(library.path(), version));
  return version / 10'000'000 * 1000 + version / 100'000 % 100 * 10;
}

/// Returns whether the plain name replaces a missing cudaStreamGetCaptureInfo_v2.
template <typename Vendor>
bool use_edges(const DynLib& library, int version, Functions& functions, SymbolNames& symbols) {
  constexpr size_t kCaptureInfo = entry("stream_get_capture_info_v2");
  if constexpr (Vendor::kPlatform != hetcclRuntimePlatformCuda) return false;
  if (functions.entries[kCaptureInfo] != nullptr || version < kFirstCudaWithEdges) return false;
  functions.capture_info_with_edges = library.symbol(kCaptureInfoWithEdges);
  if (functions.capture_info_with_edges == nullptr) return false;
  symbols[kCaptureInfo] = kCaptureInfoWithEdges;
  return true;
}

}  // namespace

template <typename Vendor>
Result<std::unique_ptr<Table>> make_table(DynLib library, const OwnEntries& own) {
  SymbolNames symbols{};
  Functions functions = find_functions<Vendor>(library, symbols);
  for (const size_t needed : {entry("get_device_count"), entry("device_get_attribute"),
                              entry("get_last_error"), entry("get_error_string")}) {
    if (functions.entries[needed] != nullptr) continue;
    return error(ErrorCode::Unsupported, "%s is too old, or no such runtime: it lacks %s",
                 library.path().c_str(), symbols[needed]);
  }
  library.stay_loaded();
  HETCCL_ASSIGN(const int version, read_version<Vendor>(library, functions));
  auto made = std::make_unique<Table>(std::move(library), symbols);
  hetcclRuntime& table = made->entries;
  table.size = sizeof table;
  table.platform = Vendor::kPlatform;
  table.version = version;
  if (table.version != 0) {
    made->version_text = format("%d.%d", table.version / 1000, table.version % 1000 / 10);
  }
  table.version_text = made->version_text.c_str();
  table.path = made->library.path().c_str();
  table.get_available_platforms = own.get_available_platforms;
  table.set_platform = own.set_platform;
  table.set_platform_auto = own.set_platform_auto;
  table.get_platform = Adapted<Vendor>::get_platform;
  fill_memory<Vendor>(table);
  fill_work<Vendor>(table);
  fill_graphs<Vendor>(table);
  fill_devices<Vendor>(table);
  const bool edges = use_edges<Vendor>(made->library, table.version, functions, made->symbols);
  for (size_t i = 0; i < kEntries.size(); ++i) {
    const bool served = edges && i == entry("stream_get_capture_info_v2");
    made->available[i] = i < kOwnEntries || functions.entries[i] != nullptr || served;
    if (made->available[i]) continue;
    made->missing.append(made->missing.empty() ? "" : ", ").append(kEntries[i].name);
  }
  remove_missing(table, made->available);
  Vendor::functions = functions;
  return made;
}

template Result<std::unique_ptr<Table>> make_table<Cuda>(DynLib, const OwnEntries&);
template Result<std::unique_ptr<Table>> make_table<Hip>(DynLib, const OwnEntries&);

}  // namespace hetccl::runtime
