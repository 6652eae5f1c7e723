// A libibverbs of this process: queue pairs that move bytes between threads, and faults that no
// machine makes when a test wants them. Memory, keys, attributes and limits are checked as devices
// and the kernel check them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "transport/verbs/library.h"

namespace hetccl::fake {

/// The behaviour of the fabric, for all devices. Set before a transport is made, read afterwards.
struct VerbsFabric {
  std::vector<std::string> devices = {"fake0"};
  std::vector<std::string> folders{};  ///< the devices' in sysfs; a device beyond the list has none
  int ports = 1;                       ///< of each device; port p of device d has 10.0.d.p
  uint8_t link = transport::verbs::abi::kLinkEthernet;
  int port_state = transport::verbs::abi::kPortActive;
  /// Entries of a port's table: link-local, version 1 over IPv4, version 2 over IPv4.
  int gids = 3;
  /// Changes the attributes of a port ("fake0:1"). Must not call the fabric.
  std::function<void(const std::string& port, transport::verbs::abi::PortAttr&)> adjust;
  uint32_t inline_bytes = 220;  ///< that a queue pair takes at most
  /// Bytes move, and sends complete, fewer polls late than this; 0: at the next one.
  uint32_t late = 0;
  /// Returns whether the queue pair keeps its requests, the next of which has this opcode.
  std::function<bool(uint32_t number, int opcode)> holds;
  bool holds_sends = false;    ///< sends that have arrived complete once this is false
  int fail_registrations = 0;  ///< so many chunks find no memory to lock, though others end
  size_t lockable = SIZE_MAX;  ///< bytes that may be registered in a protection domain
  bool dmabufs = true;         ///< whether devices register them
  /// Whether a dma-buf of so many bytes finds no room on a card; empty: none does.
  std::function<bool(size_t bytes)> refuses_dmabuf;
  /// Copies where a dma-buf is no memory that the host could map; empty: it is.
  std::function<void(void* to, const void* from, size_t bytes)> copy;
  /// Writes to a dma-buf are seen once something was read from there.
  bool holds_writes = false;
  int fork_support = 0;  ///< as ibv_is_fork_initialized tells it
  bool fork_init_fails = false;
  int connect_failure = 0;  ///< an errno with which no queue pair gets ready to receive
  /// The sends and writes of a queue pair complete with `failure` from this one on; 0: none.
  uint32_t fails_from = 0;
  std::function<bool(uint32_t number, int opcode)> fails;  ///< the same, as `holds`
  int failure = transport::verbs::abi::kWcRetryExceeded;

  // Counted.
  uint64_t not_ready = 0;   ///< messages that met no posted receive
  uint64_t overflows = 0;   ///< completions that a queue had no room for
  uint64_t violations = 0;  ///< memory that was not registered, or is no longer; destroyed in use
  uint64_t posts = 0, polls = 0, arms = 0, events = 0;
  std::map<std::string, uint64_t> carried;  ///< bytes that devices have sent
  int fork_inits = 0;
  int64_t regions = 0, dmabuf_regions = 0, queue_pairs = 0;
  uint64_t registered = 0;    ///< regions so far
  uint64_t device_bytes = 0;  ///< moved from or to dma-bufs
};

/// Puts everything back to the defaults. What is random follows from `seed`.
VerbsFabric& reset_verbs_fabric(uint32_t seed = 1);
VerbsFabric& verbs_fabric();
/// VerbsFabric::registered, while ranks run.
uint64_t count_registrations();
/// Makes an asynchronous event (abi::AsyncType) of each open device, or of each queue pair or
/// completion queue, as its type has it.
void raise_verbs_event(int type);
std::shared_ptr<const transport::verbs::Api> verbs_api();

}  // namespace hetccl::fake
