// The functions of a net plug-in, the same whichever version of the interface it has.
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
  std::string pci_path;  ///< its folder in sysfs; "" where the plug-in gives none
  int pointers = 0;      ///< bits: abi::kPointerHost...
  int mbps = 0, port = 0;
  float latency = 0;  ///< microseconds
  int max_comms = 0, max_receives = 0;
  bool forces_flush = false;  ///< whatever the GPU says (version 9 and newer)
  size_t max_bytes = 0;       ///< of one send
};

/// Memory to be registered. `fd` and `offset` are those of a DmaBuf.
struct Range {
  void* data = nullptr;
  size_t bytes = 0;
  MemoryType memory = MemoryType::Host;
  int fd = -1;
  uint64_t offset = 0;
};

/// Each returns the plug-in's code: abi::kSuccess or a failure. None blocks. A connection takes
/// calls from one thread at a time; different ones may be used by different threads.
class Calls {
 public:
  virtual ~Calls() = default;
  [[nodiscard]] virtual int version() const = 0;
  [[nodiscard]] virtual const char* name() const = 0;
  /// Once in a process, before all others. Plug-ins that choose among several networks fill in
  /// their table and its name here.
  virtual int init() = 0;
  /// After `init`: whether no function is missing.
  [[nodiscard]] virtual bool is_complete() const = 0;
  virtual int devices(int* n) = 0;
  virtual int properties(int device, Properties* properties) = 0;
  /// `handle` has abi::kHandleBytes, for the rank that connects.
  virtual int listen(int device, void* handle, void** listener) = 0;
  /// Leaves `*sender` null while the connection is not made: it is called again, with the same
  /// `handle`, in which the plug-in may keep its progress.
  virtual int connect(int device, void* handle, void** sender) = 0;
  virtual int accept(void* listener, void** receiver) = 0;
  virtual int register_memory(void* comm, const Range& range, void** region) = 0;
  virtual int deregister(void* comm, void* region) = 0;
  /// Leave `*request` null where the plug-in takes no more now.
  virtual int send(void* sender, const Range& range, void* region, void** request) = 0;
  virtual int receive(void* receiver, const Range& range, void* region, void** request) = 0;
  /// Whether the plug-in has `flush`.
  [[nodiscard]] virtual bool can_flush() const = 0;
  /// Once it has ended, all that `receiver` has received into `range` can be seen. Leaves
  /// `*request` null where there is nothing to wait for.
  virtual int flush(void* receiver, const Range& range, void* region, void** request) = 0;
  virtual int test(void* request, int* done, int* bytes) = 0;
  virtual int close_sender(void* sender) = 0;
  virtual int close_receiver(void* receiver) = 0;
  virtual int close_listener(void* listener) = 0;
};

/// Those of the newest interface that `library` has. Unsupported where it has none from 8 to 12.
Result<std::unique_ptr<Calls>> find_calls(const DynLib& library);

/// "ncclSystemError".
std::string name_of_code(int code);

}  // namespace hetccl::transport::ncclnet
