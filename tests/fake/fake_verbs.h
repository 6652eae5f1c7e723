// A libibverbs of this process: queue pairs that move bytes between threads, and faults that no
// machine makes when a test wants them. Memory and limits are checked as a device checks them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "transport/verbs/library.h"

namespace hetccl::fake {

/// What the fabric does, for all devices. Set before a transport is made, read afterwards.
struct VerbsFabric {
  std::vector<std::string> devices = {"fake0"};
  int port_state = transport::verbs::abi::kPortActive;
  bool has_gid = true;
  /// Completions of sends come this many polls late at most, by `seed`.
  uint32_t late = 0;
  uint32_t seed = 1;
  int fail_registrations = 0;  ///< so many chunks find no memory to lock
  /// The sends and writes of a queue pair complete with `failure` from this one on; 0: none.
  uint32_t fails_from = 0;
  int failure = transport::verbs::abi::kWcRetryExceeded;
  bool dmabufs = true;  ///< whether devices take them
  /// What is written to a dma-buf is seen once something was read from there.
  bool holds_writes = false;

  // Counted.
  uint64_t not_ready = 0;   ///< messages that met no posted receive
  uint64_t overflows = 0;   ///< completions that a queue had no room for
  uint64_t violations = 0;  ///< memory that was not registered, or is no longer
  int64_t regions = 0, dmabuf_regions = 0, queue_pairs = 0;
  uint64_t registered = 0;    ///< regions so far
  uint64_t device_bytes = 0;  ///< moved from or to dma-bufs
};

/// Puts everything back to the defaults.
VerbsFabric& reset_verbs_fabric();
VerbsFabric& verbs_fabric();
std::shared_ptr<const transport::verbs::Api> verbs_api();

}  // namespace hetccl::fake
