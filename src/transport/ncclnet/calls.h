// The functions of a net plug-in, in one form for all versions of the interface.
#pragma once

#include <memory>
#include <string>

#include "base/dynlib.h"
#include "base/status.h"
#include "transport/ncclnet/abi.h"

namespace hetccl::transport::ncclnet {

/// The kind of memory that is registered.
enum class MemoryType : int {
  Host = abi::kPointerHost,
  Cuda = abi::kPointerCuda,
  DmaBuf = abi::kPointerDmaBuf
};

/// A device, as its plug-in describes it.
struct Properties {
  std::string name;      ///< printable
  std::string pci_path;  ///< folder in sysfs; "": the plug-in tells none
  int pointers = 0;      ///< bits: abi::kPointerHost...
  int mbps = 0, port = 0;
  float latency = 0;  ///< microseconds
  int max_comms = 0, max_receives = 0;
  bool forces_flush = false;  ///< flushes are needed, even if the GPU says no (version 9 and newer)
  size_t max_bytes = 0;       ///< the longest send
};

/// Memory to be registered. `fd` and `offset` are those of a DmaBuf.
struct Range {
  void* data = nullptr;
  size_t bytes = 0;
  MemoryType memory = MemoryType::Host;
  int fd = -1;
  uint64_t offset = 0;
};

/// Each call returns the plug-in's code, abi::kSuccess or a failure, and none blocks. One thread at
/// a time uses a connection; different threads may use different connections.
class Calls {
 public:
  virtual ~Calls() = default;
  [[nodiscard]] virtual int version() const = 0;
  [[nodiscard]] virtual const char* name() const = 0;
  /// Call once in a process, before all others. A plug-in that chooses among several networks fills
  /// in its table and its name here.
  virtual int init() = 0;
  /// Returns, after `init`, whether the plug-in has every function that is needed.
  [[nodiscard]] virtual bool is_complete() const = 0;
  virtual int devices(int* n) = 0;
  virtual int properties(int device, Properties* properties) = 0;
  /// Writes abi::kHandleBytes to `handle`. The rank that connects needs them.
  virtual int listen(int device, void* handle, void** listener) = 0;
  /// Leaves `*sender` null until the connection is made. Then call it again with the same `handle`,
  /// in which the plug-in may keep its progress.
  virtual int connect(int device, void* handle, void** sender) = 0;
  virtual int accept(void* listener, void** receiver) = 0;
  virtual int register_memory(void* comm, const Range& range, void** region) = 0;
  virtual int deregister(void* comm, void* region) = 0;
  /// Leave `*request` null if the plug-in takes no further request now.
  virtual int send(void* sender, const Range& range, void* region, void** request) = 0;
  virtual int receive(void* receiver, const Range& range, void* region, void** request) = 0;
  /// Returns whether the plug-in has `flush`.
  [[nodiscard]] virtual bool can_flush() const = 0;
  /// Begins a flush. When it has ended, everything that `receiver` has received into `range` is
  /// visible. Leaves `*request` null if there is nothing to wait for.
  virtual int flush(void* receiver, const Range& range, void* region, void** request) = 0;
  virtual int test(void* request, int* done, int* bytes) = 0;
  virtual int close_sender(void* sender) = 0;
  virtual int close_receiver(void* receiver) = 0;
  virtual int close_listener(void* listener) = 0;
};

/// Returns the calls of the newest interface that `library` has, or Unsupported if it has none of
/// the versions 8 to 12.
Result<std::unique_ptr<Calls>> find_calls(const DynLib& library);

/// Returns the name of a plug-in's code, such as "ncclSystemError".
std::string name_of_code(int code);

}  // namespace hetccl::transport::ncclnet
