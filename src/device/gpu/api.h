// A GPU vendor's runtime as a table of calls with neutral names and types: CUDA's (cuda.cc) and
// HIP's (hip.cc). The one Device over it (gpu_device.h) knows no vendor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/dynlib.h"
#include "base/reduce.h"
#include "base/status.h"

namespace hetccl::device::gpu {

/// A mapping of physical memory of a device, or of the host that devices know.
struct Mapping {
  void* base = nullptr;
  size_t bytes = 0;  ///< 0: the address is in none that other devices may reach
  uint64_t id = 0;   ///< of the physical memory: none that the process has or had shares it
  bool on_device = false;
};

/// Calls return 0, or what `error_text` explains; handles are the vendor's own. All but the first
/// block work on the calling thread's context. Thread-safe.
struct Api {
  std::string vendor;   ///< "cuda", "hip", or an adaptor's name
  std::string version;  ///< of the driver, e.g. "13.0"
  std::string path;     ///< of the library
  std::function<const char*(int)> error_text;

  std::function<int(int* count)> device_count;
  std::function<int(char* text, int bytes, int device)> device_name, device_bus_id;
  std::function<int(std::string* architecture, int device)> device_architecture;
  std::function<int(int* count, int device)> device_multiprocessors;
  /// A context is a device as the calling thread's current one; it is that of all its users.
  std::function<int(void** context, int device)> retain_context;
  std::function<int(int device)> release_context;
  std::function<int(void** context)> get_context;  ///< null: the thread has none
  std::function<int(void* context)> set_context;
  std::function<int(int* device)> current_device;  ///< of the thread's context
  /// Whatever the calling thread calls from now on breaks no graph that others record.
  std::function<int()> stand_apart;

  std::function<int(void** memory, size_t bytes)> allocate;
  std::function<int(void* memory)> free;
  /// Page-locked, mapped into every device under its host address.
  std::function<int(void** memory, size_t bytes)> allocate_pinned;
  std::function<int(void* memory)> free_pinned;
  /// What the process has mapped becomes as if it were that, until `unpin`.
  std::function<int(void* memory, size_t bytes)> pin;
  /// Whose memory an address is: -1 where it is no device's. `managed`: the host reaches it, too.
  std::function<int(const void* address, int* device, bool* managed)> memory_owner;
  std::function<int(void* memory)> unpin;
  /// Empty where the runtime does not tell.
  std::function<int(const void* address, Mapping* mapping)> find_mapping;
  /// A dma-buf of whole pages of a device's memory, which begin at `offset` in it. Empty where the
  /// runtime has none.
  std::function<int(void* pages, size_t bytes, int* fd, size_t* offset)> export_pages;
  /// See Device::needs_flush. Empty: it does.
  std::function<int(bool* needs, int device)> needs_flush;
  std::function<int(void** stream)> create_stream;  ///< independent of the default stream
  std::function<int(void* stream)> destroy_stream;  ///< its work goes on
  /// Not 0: what is enqueued becomes part of a graph instead.
  std::function<int(void* stream, int* capturing)> is_capturing;
  std::function<int(void** event)> create_event;  ///< without a time
  std::function<int(void* event)> destroy_event;
  std::function<int(void* event, void* stream)> record;
  std::function<int(void* stream, void* event)> wait;
  /// The stream waits until int32_t(*word - value) >= 0; it writes after all its work before. Empty
  /// where the runtime has no such calls.
  std::function<int(void* stream, void* word, uint32_t value)> wait_word, write_word;
  std::function<int(void* dst, const void* src, size_t bytes, void* stream)> copy;
  std::function<int(void* stream, void (*function)(void*), void* argument)> call_host;
  std::function<int(void** module, const void* image)> load_module;
  std::function<int(void* module)> unload_module;
  /// Of a module, and all that its first launch would load.
  std::function<int(void** kernel, void* module, const char* name)> find_kernel;
  std::function<int(void* kernel, unsigned blocks, unsigned threads, void* stream,
                    void** arguments)>
      launch;
  /// Of a runtime that reduces by itself; empty: kernels that hetccl compiles do, if there are any.
  std::function<bool(DataType type, RedOp op)> reduces;
  std::function<int(void* stream, const Reduction& reduction)> reduce;

  std::vector<DynLib> libraries;  ///< keep the calls valid
};

/// CUDA's driver, which every process that uses CUDA has loaded, whatever runtime it was built
/// with. Unsupported with the reason where there is none, or no GPU. Not for forked children.
Result<std::shared_ptr<const Api>> load_cuda();

/// HIP's runtime: the process's own copy first, or from `path`. Unsupported with the reason where
/// there is none, HIP before 6, or no GPU.
Result<std::shared_ptr<const Api>> load_hip(const std::string& path);

/// Has calls that wait for the device harm no graph that any thread records, by the vendor's
/// `exchange` of the thread's capture mode; fills in `stand_apart`.
void set_apart_from_graphs(Api& api, const std::function<int(int* mode)>& exchange);

/// The device of the calling thread's context, or -1; initialises nothing.
int current_device(const Api& api);

}  // namespace hetccl::device::gpu
