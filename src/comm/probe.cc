#include "comm/probe.h"

#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "net/socket.h"

namespace hetccl::comm {
namespace {

std::string first_line(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::string inode_of(const char* path) {
  struct stat info{};
  return stat(path, &info) == 0 ? std::to_string(info.st_ino) : "unknown";
}

std::string host_name() {
  char name[256] = {};
  return gethostname(name, sizeof name - 1) == 0 ? name : "unknown";
}

}  // namespace

std::string host_identity() {
  return first_line("/proc/sys/kernel/random/boot_id") + "/net:" + inode_of("/proc/self/ns/net") +
         "/pid:" + inode_of("/proc/self/ns/pid") + "/uid:" + std::to_string(getuid());
}

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
  const auto reduced_by = [](const auto& what) {
    return ReductionSet::where([&](DataType type, RedOp op) { return what.supports(type, op); });
  };
  info.device_reduces = info.kernels ? reduced_by(device) : ReductionSet::all();
  info.library_reduces = reduced_by(library);
  info.library_sends = library.sends();
  info.library_exchanges = library.supports_exchange();
  info.host_access = (device.capabilities() & device::kHostAccessible) != 0;
  info.bus_id = device.bus_id();
  info.library = library.name();
  info.library_version = library.version();
  info.reach = {library.reach().hosts, library.reach().architectures};
  info.library_crosses_hosts = !config.encrypt || config.vendor_cleartext;
  info.label = !label.empty() ? label : config.cluster;
  HETCCL_ASSIGN(const auto interfaces, net::interfaces(config));
  for (const auto& interface : interfaces) {
    info.nics.push_back({interface.name, interface.address.text(), interface.mbps, 0});
  }
  return info;
}

}  // namespace hetccl::comm
