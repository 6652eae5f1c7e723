// A rank's word to its peers on its plug-in, and the devices by which a channel goes.
#pragma once

#include <string>

#include "transport/transport.h"

namespace hetccl::transport::ncclnet {

inline constexpr size_t kMostDevices = 16;

/// What `listen` returns: the plug-in's network, then where transport/tcp's listener of this
/// transport is.
struct Endpoint {
  std::string network;  ///< Plugin::name
  size_t devices = 1;   ///< 1 to kMostDevices
  Address listener;
};

Address encode(const Endpoint& endpoint);
/// InvalidArgument where the bytes are not an endpoint.
Result<Endpoint> decode(const Address& address);

/// The own device of a channel between ranks `self` and `peer`. Pairs of ranks spread over devices;
/// where both ends have equally many, devices of one index meet.
inline size_t choose_device(size_t devices, int self, int peer) {
  return static_cast<size_t>(self + peer) % devices;
}

}  // namespace hetccl::transport::ncclnet
