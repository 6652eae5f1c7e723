// A net plug-in as NCCL loads it (net_plugin_so.cc), over sockets of this host: a real library for
// each version of the interface, with the faults that a test asks for. What callers must keep to is
// counted.
#pragma once

#include <dlfcn.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace hetccl::fake {

/// The behaviour of a plug-in, for all connections. Set before a transport is made, read
/// afterwards.
struct NetPlugin {
  uint32_t seed = 1;
  /// One call in so many of connect, accept, send and receive does something; the others return
  /// null. 1: each does.
  uint32_t works_one_in = 1;
  /// A complete request is tested so many times at most, by the seed, before it says so.
  uint32_t late = 0;
  int fail_registrations = 0;  ///< so many to come fail
  uint64_t fails_from = 0;     ///< this test and all later ones fail; 0: none
  int failure = 6;             ///< ncclRemoteError
  int says_more = 0;           ///< bytes that a receive says beside those that came
  bool never_connects = false;

  int devices = 1;
  /// The folder of each device in sysfs; devices beyond have none.
  std::vector<std::string> pci_paths{};
  int pointers = 1;  ///< host; 2: memory of GPUs by address, 4: by dma-bufs
  bool force_flush = false;
  /// Data received into memory of GPUs are there only after a flush of that memory.
  bool holds_writes = false;
  bool refuses_gpus = false;  ///< though its properties say that it takes their memory
  int max_comms = 1000;
  size_t max_bytes = 1 << 30;

  // Counted.
  std::atomic<uint64_t> tests{0}, sent_bytes{0};
  std::atomic<uint64_t> gpu_bytes{0};  ///< moved from or to memory of GPUs
  std::atomic<uint64_t> registered{0}, flushes{0};
  std::atomic<uint64_t> violations{0};   ///< of the interface, by its caller
  std::atomic<uint64_t> interrupted{0};  ///< connections closed under a request
  std::atomic<int64_t> comms{0}, regions{0}, requests{0}, most_requests{0};
  std::atomic<int> last_port{0};       ///< of the last listener
  std::atomic<int> listened_with{-1};  ///< the device of the last listener
  std::atomic<int> connected_with{-1};
};

/// The path of the library with that version of the interface, 8 to 12.
inline std::string net_plugin_path(int version) {
  return std::string(HETCCL_FAKE_NET_PLUGINS "/libnccl-net-hetccltest") + std::to_string(version) +
         ".so";
}

/// Its faults and counters, put back to the defaults. No transport may use it meanwhile.
inline NetPlugin& reset_net_plugin(int version) {
  void* const library = dlopen(net_plugin_path(version).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw std::runtime_error(dlerror());
  using Reset = NetPlugin* (*)();
  return *reinterpret_cast<Reset>(dlsym(library, "reset_net_plugin"))();
}

}  // namespace hetccl::fake
