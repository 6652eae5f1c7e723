// The card that each rank of a new communicator sends to all others, and the checks that their
// settings agree.
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
  std::map<std::string, transport::Address> addresses;  ///< by the transport's name
  std::string cores;                                    ///< of its host, that it may use: "0-3,8"
};

/// Probes the machine and returns the RankInfo of `rank` on `device`, whose cluster uses `library`.
/// A non-empty `host_id` or `label` overrides the configuration. Returns InvalidArgument if
/// HETCCL_SOCKET_IFNAME matches no interface.
Result<topology::RankInfo> probe(int rank, const device::Device& device,
                                 const ccl::Library& library, const Config& config,
                                 const std::string& host_id, const std::string& label);

std::vector<uint8_t> encode(const Card& card);
/// Parses bytes of another process: bounded and checked.
Result<Card> decode(const std::vector<uint8_t>& bytes);

/// Returns InvalidUsage naming the version or variable that differs, its values and the ranks.
Status check_agreement(const std::vector<Card>& cards);

}  // namespace hetccl::comm
