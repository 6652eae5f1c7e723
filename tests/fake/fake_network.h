// A fake transport for faults and orders that real sockets give rarely: channels inside one process
// that move random pieces at random times, complete sends late, and can be severed. Everything
// comes from a seed.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <span>
#include <vector>

#include "transport/transport.h"

namespace hetccl::fake {

class Wire;

/// Thread-safe.
class Network {
 public:
  explicit Network(uint64_t seed) : seed_(seed) {}
  /// The transport of `rank`: `progress` moves that rank's channels.
  std::unique_ptr<transport::Transport> transport(int rank);
  /// Both ends of every channel of `rank` fail with RemoteError.
  void sever(int rank);

 private:
  friend class NetworkTransport;
  std::shared_ptr<Wire> wire(int from, int to);
  std::span<std::byte> window(int rank, int peer, size_t bytes);
  std::mutex mutex_;
  uint64_t seed_;
  std::map<std::pair<int, int>, std::shared_ptr<Wire>> wires_;     // by (from, to)
  std::map<std::pair<int, int>, std::vector<std::byte>> windows_;  // by (lower, higher)
};

}  // namespace hetccl::fake
