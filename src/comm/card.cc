#include "comm/card.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <sstream>

#include "base/host_identity.h"
#include "base/json.h"
#include "base/printable.h"
#include "net/socket.h"

namespace hetccl::comm {
namespace {

constexpr size_t kMaxCardBytes = 64 << 10;
constexpr size_t kMaxAddressBytes = 4096;
constexpr size_t kMaxLine = 256;  // of `agreed`, in an error
constexpr int64_t kMaxVersion = 1'000'000'000;

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(printable(line, kMaxLine));
  return lines;
}

std::string version_text(int code) {
  return format("%d.%d.%d", code / 10000, code / 100 % 100, code % 100);
}

// Lists the NICs with their distance from the process's cores (host) or from the device's bus. A
// single NIC gets distance 0, so that plans are the same on every machine.
std::vector<topology::Nic> nics_of(const std::vector<net::Interface>& cards,
                                   const device::Device& device) {
  const bool several = net::names_of(cards).size() > 1;
  const net::BusLocation place = net::locate_rank(device.bus_id());
  std::vector<topology::Nic> nics;
  for (const net::Interface& card : cards) {
    const int distance = several ? net::distance_between(place, card.hardware.place) : net::kNear;
    nics.push_back({card.name, card.address.text(), card.mbps, distance});
  }
  return nics;
}

}  // namespace

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
  info.nics = nics_of(net::cards_among(interfaces, config), device);
  return info;
}

std::vector<uint8_t> encode(const Card& card) {
  std::vector<Json::Member> addresses;
  for (const auto& [name, address] : card.addresses) addresses.push_back({name, address});
  const Json json = {{"addresses", std::move(addresses)},
                     {"agreed", card.agreed},
                     {"cores", card.cores},
                     {"info", topology::to_json(card.info)},
                     {"version", card.version}};
  const std::string text = json.dump();
  return {text.begin(), text.end()};
}

Result<Card> decode(const std::vector<uint8_t>& bytes) {
  const auto malformed = [] {
    return error(ErrorCode::RemoteError, "a rank sent a malformed description of itself");
  };
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const Result<Json> parsed = Json::parse(text, "a card", kMaxCardBytes);
  if (!parsed.ok()) return malformed();
  const Json& json = parsed.value();
  const auto version = json["version"].integer(0, kMaxVersion);
  const std::string* agreed = json["agreed"].text();
  const std::string* info = json["info"].text();
  const std::string* cores = json["cores"].text();
  const auto* addresses = json["addresses"].members();
  if (!version || agreed == nullptr || info == nullptr || cores == nullptr || addresses == nullptr)
    return malformed();
  Card card;
  card.version = static_cast<int>(*version);
  card.agreed = *agreed;
  card.cores = *cores;
  HETCCL_ASSIGN(card.info, topology::rank_info_from_json(*info));
  for (const auto& [name, address] : *addresses) {
    const auto* elements = address.elements();
    if (elements == nullptr || elements->size() > kMaxAddressBytes) return malformed();
    for (const Json& element : *elements) {
      const auto byte = element.integer(0, 255);
      if (!byte) return malformed();
      card.addresses[name].push_back(static_cast<uint8_t>(*byte));
    }
  }
  return card;
}

Status check_agreement(const std::vector<Card>& cards) {
  const Card& first = cards.front();
  const auto expected = lines_of(first.agreed);
  for (size_t rank = 1; rank < cards.size(); ++rank) {
    const Card& card = cards[rank];
    if (card.version != first.version) {
      return error(ErrorCode::InvalidUsage,
                   "rank 0 runs hetccl %s, rank %zu hetccl %s: install one version everywhere",
                   version_text(first.version).c_str(), rank, version_text(card.version).c_str());
    }
    if (card.agreed == first.agreed) continue;
    const auto lines = lines_of(card.agreed);
    for (size_t i = 0; i < std::max(expected.size(), lines.size()); ++i) {
      const char* ours = i < expected.size() ? expected[i].c_str() : "no such setting";
      const char* theirs = i < lines.size() ? lines[i].c_str() : "no such setting";
      if (std::strcmp(ours, theirs) == 0) continue;
      return error(ErrorCode::InvalidUsage,
                   "rank 0 has %s, rank %zu has %s: set it equally everywhere", ours, rank, theirs);
    }
  }
  return {};
}

}  // namespace hetccl::comm
