// The rails of tests/rdma/vm's virtual machine: rxe0 over the interface v0, rxe1 over v1.
#pragma once

#include <doctest/doctest.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <string>

namespace hetccl::rdma_rails {

/// Returns how many packets of RoCE the kernel has sent by a rail so far.
inline uint64_t packets_of(int rail) {
  std::ifstream file("/sys/class/infiniband/rxe" + std::to_string(rail) +
                     "/ports/1/hw_counters/sent_pkts");
  uint64_t packets = 0;
  file >> packets;
  REQUIRE(file.good());
  return packets;
}

/// Cuts a rail as long as this lives, by another MAC address of its interface. The kernel then
/// takes the port's GIDs away and makes them anew: what a connected queue pair sends meanwhile
/// fails in its device, and what it sends later gets lost, since it goes to the old address.
/// (Without a link soft-RoCE goes on: what is for its own port never gets to the interface.)
class Cut {
 public:
  explicit Cut(int rail) : socket_(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    std::strncpy(request_.ifr_name, ("v" + std::to_string(rail)).c_str(), IFNAMSIZ - 1);
    REQUIRE(::ioctl(socket_, SIOCGIFHWADDR, &request_) == 0);
    flip();
  }
  ~Cut() {
    flip();
    ::close(socket_);
  }
  Cut(const Cut&) = delete;
  Cut& operator=(const Cut&) = delete;

 private:
  void flip() {
    request_.ifr_hwaddr.sa_data[5] = static_cast<char>(request_.ifr_hwaddr.sa_data[5] ^ 1);
    CHECK(::ioctl(socket_, SIOCSIFHWADDR, &request_) == 0);
  }

  const int socket_;
  ifreq request_{};
};

}  // namespace hetccl::rdma_rails
