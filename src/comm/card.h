// What the ranks of a new communicator tell each other, and what they must agree on.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/config.h"
#include "base/status.h"
#include "ccl/ccl.h"
#include "device/device.h"
#include "topology/topology.h"
#include "transport/transport.h"

namespace hetccl::comm {

struct Card {
  int version = 0;     ///< HETCCL_VERSION_CODE
  std::string agreed;  ///< Config::agreed
  topology::RankInfo info;
  std::map<std::string, transport::Address> addresses;  ///< by transport
  std::string cores;                                    ///< of its host, that it may use: "0-3,8"
};

/// Reads the machine: the RankInfo of `rank` on `device`, whose cluster uses `library`. `host_id`
/// and `label` override the configuration when not empty. InvalidArgument when HETCCL_SOCKET_IFNAME
/// names nothing.
Result<topology::RankInfo> probe(int rank, const device::Device& device,
                                 const ccl::Library& library, const Config& config,
                                 const std::string& host_id, const std::string& label);

std::vector<uint8_t> encode(const Card& card);
/// Bounded and checked: the bytes come from another process.
Result<Card> decode(const std::vector<uint8_t>& bytes);

/// InvalidUsage naming the version or the variable that differs, its values and the ranks.
Status check_agreement(const std::vector<Card>& cards);

}  // namespace hetccl::comm
