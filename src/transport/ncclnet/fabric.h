// A rank's word to its peers on its plug-in, and the devices by which a channel goes.
#pragma once

#include <string>
#include <vector>

#include "transport/ncclnet/plugin.h"
#include "transport/transport.h"

namespace hetccl::transport::ncclnet {

/// The address that `listen` returns: the plug-in's network, then that of transport/tcp's listener
/// of this transport.
struct Endpoint {
  std::string network;  ///< Plugin::name
  size_t devices = 1;   ///< 1 to Plugin::kMaxDevices
  Address listener;
};

Address encode(const Endpoint& endpoint);
/// InvalidArgument where the bytes are not an endpoint.
Result<Endpoint> decode(const Address& address);

/// Chooses the own device of a channel between ranks `self` and `peer`: the nearest to `own`, the
/// place of this rank's device. Pairs of ranks spread over equals, which where hosts are alike are
/// devices of one index.
size_t choose_device(const std::vector<Device>& devices, const net::BusLocation& own, int self,
                     int peer);

}  // namespace hetccl::transport::ncclnet
