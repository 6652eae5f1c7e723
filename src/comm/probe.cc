#include "comm/probe.h"

#include <unistd.h>

#include "base/host_identity.h"
#include "net/socket.h"

namespace hetccl::comm {
Result<topology::RankInfo> probe(int rank, const device::Device& device,
                                 const ccl::Library& library, const Config& config,
                                 const std::string& host_id, const std::string& label) {
  topology::RankInfo info;
  info.rank = rank;
  info.host = !host_id.empty()          ? host_id
              : !config.host_id.empty() ? config.host_id
                                        : host_identity();
  info.host_name = host_name();
  info.pid = getpid();
  info.vendor = device.vendor();
  info.model = device.model();
  info.architecture = device.architecture();
  info.kernels = (device.capabilities() & device::kKernels) != 0;
  info.library_reduces =
      ReductionSet::where([&](DataType type, RedOp op) { return library.supports(type, op); });
  info.library_sends = library.sends();
  info.library_exchanges = library.supports_exchange();
  info.host_access = (device.capabilities() & device::kHostAccessible) != 0;
  info.bus_id = device.bus_id();
  info.library = library.name();
  info.library_version = library.version();
  info.reach = {library.reach().hosts, library.reach().architectures};
  info.library_crosses_hosts = !config.encrypt || config.vendor_cleartext;
  info.label = !label.empty() ? label : config.cluster;
  info.label_joins = config.cluster_join;
  HETCCL_ASSIGN(const auto interfaces, net::interfaces(config));
  for (const auto& interface : interfaces) {
    info.nics.push_back({interface.name, interface.address.text(), interface.mbps, 0});
  }
  return info;
}

}  // namespace hetccl::comm
