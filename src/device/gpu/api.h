// A GPU vendor's runtime as a table of calls with neutral names and types, filled in for CUDA
// (cuda.cc) and HIP (hip.cc). The one Device over it (gpu_device.h) knows no vendor.
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

/// A mapping of physical memory: a device's, or host memory known to devices.
struct Mapping {
  void* base = nullptr;
  size_t bytes = 0;  ///< 0: other devices cannot reach the address
  uint64_t id = 0;   ///< of the physical memory: unique in the process, past and present
  bool on_device = false;
};

/// Calls return 0, or a code for `error_text`. Handles are the vendor's own. All calls except the
/// first block use the calling thread's context. Thread-safe.
struct Api {
  std::string vendor;   ///< "cuda", "hip", or an adaptor's name
  std::string version;  ///< of the driver, e.g. "13.0"
  std::string path;     ///< of the library
  std::function<const char*(int)> error_text;

  std::function<int(int* count)> device_count;
  std::function<int(char* text, int bytes, int device)> device_name, device_bus_id;
  std::function<int(std::string* architecture, int device)> device_architecture;
  std::function<int(int* count, int device)> device_multiprocessors;
  /// A context makes a device the calling thread's current one. All users of the device share it.
  std::function<int(void** context, int device)> retain_context;
  std::function<int(int device)> release_context;
  std::function<int(void** context)> get_context;  ///< null: the thread has none
  std::function<int(void* context)> set_context;
  std::function<int(int* device)> current_device;  ///< of the thread's context
  /// Makes later calls of this thread harmless to graphs that other threads capture.
  std::function<int()> stand_apart;

  std::function<int(void** memory, size_t bytes)> allocate;
  std::function<int(void* memory)> free;
  /// Allocates page-locked memory, mapped into every device at its host address.
  std::function<int(void** memory, size_t bytes)> allocate_pinned;
  std::function<int(void* memory)> free_pinned;
  /// Makes memory that the process has mapped like that, until `unpin`.
  std::function<int(void* memory, size_t bytes)> pin;
  /// Returns the device that owns an address; -1: none. `managed`: the host reaches it, too.
  std::function<int(const void* address, int* device, bool* managed)> memory_owner;
  std::function<int(void* memory)> unpin;
  /// Empty if the runtime cannot tell.
  std::function<int(const void* address, Mapping* mapping)> find_mapping;
  /// Exports whole pages of a device's memory as a dma-buf, in which they begin at `offset`. Empty
  /// if the runtime cannot.
  std::function<int(void* pages, size_t bytes, int* fd, size_t* offset)> export_pages;
  /// See Device::needs_flush. Empty: it needs flushes.
  std::function<int(bool* needs, int device)> needs_flush;
  std::function<int(void** stream)> create_stream;  ///< independent of the default stream
  std::function<int(void* stream)> destroy_stream;  ///< its work continues
  /// Sets a non-zero value if enqueued work is captured into a graph.
  std::function<int(void* stream, int* capturing)> is_capturing;
  std::function<int(void** event)> create_event;  ///< without timing
  std::function<int(void* event)> destroy_event;
  std::function<int(void* event, void* stream)> record;
  std::function<int(void* stream, void* event)> wait;
  /// Make the stream wait until int32_t(*word - value) >= 0, or write the word after all its
  /// earlier work. Empty if the runtime has no such calls.
  std::function<int(void* stream, void* word, uint32_t value)> wait_word, write_word;
  std::function<int(void* dst, const void* src, size_t bytes, void* stream)> copy;
  std::function<int(void* stream, void (*function)(void*), void* argument)> call_host;
  std::function<int(void** module, const void* image)> load_module;
  std::function<int(void* module)> unload_module;
  /// Finds a kernel of a module, and loads everything that its first launch would load.
  std::function<int(void** kernel, void* module, const char* name)> find_kernel;
  std::function<int(void* kernel, unsigned blocks, unsigned threads, void* stream,
                    void** arguments)>
      launch;
  /// Set for a runtime that reduces by itself. Empty: kernels that hetccl compiles reduce, if there
  /// are any.
  std::function<bool(DataType type, RedOp op)> reduces;
  std::function<int(void* stream, const Reduction& reduction)> reduce;

  std::vector<DynLib> libraries;  ///< keep the calls valid
};

/// Loads CUDA's driver, which every process that uses CUDA has loaded, whatever its runtime's
/// version. Returns Unsupported, with the reason, if it is missing or there is no GPU. Not for
/// forked children.
Result<std::shared_ptr<const Api>> load_cuda();

/// Loads HIP's runtime: the process's own copy, or the one at `path`. Returns Unsupported, with the
/// reason, if it is missing or older than 6, or if there is no GPU.
Result<std::shared_ptr<const Api>> load_hip(const std::string& path);

/// Makes calls that wait for the device harmless to graphs that any thread captures, using the
/// vendor's `exchange` of the thread's capture mode. Fills in `stand_apart`.
void set_apart_from_graphs(Api& api, const std::function<int(int* mode)>& exchange);

/// Returns the device of the calling thread's context, or -1. Initialises nothing.
int current_device(const Api& api);

}  // namespace hetccl::device::gpu
