// The address by which ranks tell each other of their plug-in, and the choice of a channel's
// device.
#pragma once

#include <string>
#include <vector>

#include "transport/ncclnet/plugin.h"
#include "transport/transport.h"

namespace hetccl::transport::ncclnet {

/// The contents of the address that `listen` returns: the plug-in's network, and the address of
/// this transport's listener for control connections (transport/tcp).
struct Endpoint {
  std::string network;  ///< Plugin::name
  size_t devices = 1;   ///< 1 to Plugin::kMaxDevices
  Address listener;
};

Address encode(const Endpoint& endpoint);
/// Returns InvalidArgument if the bytes are not an endpoint.
Result<Endpoint> decode(const Address& address);

/// Chooses this rank's device for a channel between ranks `self` and `peer`: the one nearest to
/// `own`, the location of the rank's own device. If several are equally near, pairs of ranks spread
/// over them; on hosts that are alike, both ends then choose the same index.
size_t choose_device(const std::vector<Device>& devices, const net::BusLocation& own, int self,
                     int peer);

}  // namespace hetccl::transport::ncclnet
