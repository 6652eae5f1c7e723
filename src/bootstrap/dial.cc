#include "bootstrap/dial.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <thread>

#include "bootstrap/coordinator.h"
#include "net/auth.h"

namespace hetccl::bootstrap {

namespace {

using std::chrono::milliseconds;

// A coordinator flooded by strangers may drop a rank's connection: it tries again. One that refuses
// this often does not know us.
constexpr int kRefusals = 5;

bool same(const net::SocketAddress& a, const net::SocketAddress& b) {
  std::array<uint8_t, net::SocketAddress::kEncodedBytes> left, right;
  a.encode(left.data());
  b.encode(right.data());
  return left == right;
}

struct Candidate {
  net::SocketAddress address;
  int refusals = 0;
};

std::vector<net::SocketAddress> addresses_of(const std::vector<Candidate>& candidates) {
  std::vector<net::SocketAddress> addresses;
  for (const Candidate& candidate : candidates) addresses.push_back(candidate.address);
  return addresses;
}

}  // namespace

Result<net::Wire> dial(const Invitation& invitation, const DialOptions& options) {
  std::vector<Candidate> candidates;
  for (const net::SocketAddress& address : invitation.addresses) candidates.push_back({address});
  const net::Hello hello{kPurpose, 0, invitation.communicator, options.rank};
  std::string last;
  while (!candidates.empty()) {
    auto connected = net::connect(addresses_of(candidates), options.deadline, options.cancel);
    if (!connected.ok()) {
      if (options.cancel != nullptr && options.cancel->is_set()) return connected.status();
      return connected.status().with(last.empty() ? "the coordinator does not answer" : last);
    }
    const net::SocketAddress peer = net::peer_address(connected->get());
    const TimePoint until = std::min(options.deadline, steady_clock().now() + options.patience);
    auto proven =
        net::dial_handshake(std::move(*connected), hello, options.key, options.encryption, until);
    // Our coordinator has spoken: another try would end the same way.
    if (proven.ok() || proven.status().code() == Code::InvalidUsage) return proven;
    last = peer.text() + ": " + proven.status().message();
    const auto at = std::find_if(candidates.begin(), candidates.end(),
                                 [&](const Candidate& one) { return same(one.address, peer); });
    if (at == candidates.end()) continue;
    if (++at->refusals >= kRefusals) {
      candidates.erase(at);
      continue;
    }
    const Duration pause = milliseconds(10) * at->refusals;
    std::rotate(candidates.begin(), at + 1, candidates.end());  // another address may be the one
    std::this_thread::sleep_for(pause);
  }
  return error(Code::RemoteError,
               "who listens there is not this id's coordinator (%s): give every rank the unique id "
               "made in this run, unchanged, while the process that made it lives",
               last.c_str());
}

}  // namespace hetccl::bootstrap
