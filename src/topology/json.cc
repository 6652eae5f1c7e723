// Topologies and measurements as JSON. Input comes from another process or a file: every type,
// length and range is checked.
#include "base/json.h"

#include <limits>

#include "base/printable.h"
#include "topology/topology.h"

namespace hetccl::topology {
namespace {

constexpr size_t kMaxInfoBytes = size_t{1} << 20U;
constexpr size_t kMaxTopologyBytes = size_t{128} << 20U;
constexpr size_t kMaxString = 4096;
constexpr size_t kMaxNics = 256;
constexpr int64_t kMaxMbps = 1'000'000'000;
constexpr int64_t kMaxWindowBytes = int64_t{1} << 30U;
constexpr int64_t kMaxLatencyNs = 60'000'000'000;
constexpr size_t kMaxMeasurements = 65'536;

Json encode(const ReductionSet& set) {
  const auto& masks = set.masks();
  return std::vector<Json>(masks.begin(), masks.end());
}

Json encode(const RankInfo& info) {
  std::vector<Json> nics;
  for (const Nic& nic : info.nics) {
    nics.push_back({{"name", nic.name},
                    {"address", nic.address},
                    {"mbps", nic.mbps},
                    {"distance", nic.distance}});
  }
  return {{"rank", info.rank},
          {"host", info.host},
          {"host_name", info.host_name},
          {"pid", info.pid},
          {"vendor", info.vendor},
          {"model", info.model},
          {"architecture", info.architecture},
          {"bus_id", info.bus_id},
          {"library", info.library},
          {"library_version", info.library_version},
          {"label", info.label},
          {"label_joins", info.label_joins},
          {"kernels", info.kernels},
          {"library_reduces", encode(info.library_reduces)},
          {"library_sends", info.library_sends},
          {"library_exchanges", info.library_exchanges},
          {"host_access", info.host_access},
          {"library_joins_hosts", info.reach.hosts},
          {"library_joins_architectures", info.reach.architectures},
          {"library_crosses_hosts", info.library_crosses_hosts},
          {"shared_memory", info.shared_memory},
          {"window_bytes", info.window_bytes},
          {"nics", std::move(nics)}};
}

std::vector<Json> encode(const std::vector<Measurement>& measured) {
  std::vector<Json> list;
  for (const Measurement& one : measured) {
    list.push_back(
        {{"a", one.a}, {"b", one.b}, {"latency_ns", one.latency_ns}, {"mbps", one.mbps}});
  }
  return list;
}

Status read(const Json& object, const char* key, std::string& out) {
  const Json* value = object.find(key);
  if (value == nullptr) return {};
  const std::string* text = value->text();
  if (text == nullptr) return error(ErrorCode::InvalidArgument, "\"%s\" must be a string", key);
  if (text->size() > kMaxString) {
    return error(ErrorCode::InvalidArgument, "\"%s\" has %zu bytes, at most %zu are allowed", key,
                 text->size(), kMaxString);
  }
  out = printable(*text, kMaxString);  // from a peer or a file
  return {};
}

template <typename Integer>
Status read(const Json& object, const char* key, int64_t largest, Integer& out) {
  const Json* value = object.find(key);
  if (value == nullptr) return {};
  const auto integer = value->integer(0, largest);
  if (!integer) {
    return error(ErrorCode::InvalidArgument, "\"%s\" must be an integer from 0 to %lld", key,
                 static_cast<long long>(largest));
  }
  out = static_cast<Integer>(*integer);
  return {};
}

Status read(const Json& object, const char* key, bool& out) {
  const Json* value = object.find(key);
  if (value == nullptr) return {};
  const auto given = value->boolean();
  if (!given) return error(ErrorCode::InvalidArgument, "\"%s\" must be true or false", key);
  out = *given;
  return {};
}

Status read(const Json& object, const char* key, ReductionSet& out) {
  const Json* value = object.find(key);
  if (value == nullptr) return {};
  std::vector<uint64_t> masks;
  const auto* elements = value->elements();
  const bool fits = elements != nullptr && elements->size() == ReductionSet::kOps;
  for (size_t i = 0; fits && i < elements->size(); ++i) {
    const auto mask = (*elements)[i].integer(0, UINT16_MAX);
    if (mask) masks.push_back(static_cast<uint64_t>(*mask));
  }
  const auto set = ReductionSet::from(masks);
  if (!set) {
    return error(ErrorCode::InvalidArgument,
                 "\"%s\" must be an array of %zu masks of types, one for each operator", key,
                 ReductionSet::kOps);
  }
  out = *set;
  return {};
}

Status decode_nics(const Json& object, std::vector<Nic>& out) {
  const Json* value = object.find("nics");
  if (value == nullptr) return {};
  const auto* nics = value->elements();
  if (nics == nullptr || nics->size() > kMaxNics) {
    return error(ErrorCode::InvalidArgument, "\"nics\" must be an array of at most %zu", kMaxNics);
  }
  for (const Json& entry : *nics) {
    if (entry.members() == nullptr)
      return error(ErrorCode::InvalidArgument, "a NIC must be an object");
    Nic nic;
    HETCCL_TRY(read(entry, "name", nic.name).with("a NIC"));
    HETCCL_TRY(read(entry, "address", nic.address).with("a NIC"));
    HETCCL_TRY(read(entry, "mbps", kMaxMbps, nic.mbps).with("a NIC"));
    HETCCL_TRY(read(entry, "distance", 1'000'000, nic.distance).with("a NIC"));
    out.push_back(std::move(nic));
  }
  return {};
}

Result<RankInfo> decode(const Json& object, const AdaptorTraits& traits) {
  if (object.members() == nullptr) {
    return error(ErrorCode::InvalidArgument, "a rank's description must be a JSON object");
  }
  for (const char* required : {"rank", "host", "vendor"}) {
    if (object.find(required) == nullptr) {
      return error(ErrorCode::InvalidArgument, "a rank's description lacks \"%s\"", required);
    }
  }
  RankInfo info;
  HETCCL_TRY(read(object, "rank", kMaxRanks - 1, info.rank));
  HETCCL_TRY(read(object, "pid", std::numeric_limits<int32_t>::max(), info.pid));
  const std::pair<const char*, std::string*> texts[] = {{"host", &info.host},
                                                        {"host_name", &info.host_name},
                                                        {"vendor", &info.vendor},
                                                        {"model", &info.model},
                                                        {"architecture", &info.architecture},
                                                        {"bus_id", &info.bus_id},
                                                        {"library", &info.library},
                                                        {"library_version", &info.library_version},
                                                        {"label", &info.label}};
  for (const auto& [key, text] : texts) HETCCL_TRY(read(object, key, *text));
  HETCCL_TRY(read(object, "label_joins", info.label_joins));
  HETCCL_TRY(read(object, "kernels", info.kernels));
  if (const auto known = traits.libraries.find(info.vendor); known != traits.libraries.end()) {
    info.reach = known->second.reach;
    info.library_reduces = known->second.reduces(info.architecture);
  }
  HETCCL_TRY(read(object, "library_reduces", info.library_reduces));
  HETCCL_TRY(read(object, "library_sends", info.library_sends));
  HETCCL_TRY(read(object, "library_exchanges", info.library_exchanges));
  HETCCL_TRY(read(object, "host_access", info.host_access));
  HETCCL_TRY(read(object, "library_joins_hosts", info.reach.hosts));
  HETCCL_TRY(read(object, "library_joins_architectures", info.reach.architectures));
  HETCCL_TRY(read(object, "library_crosses_hosts", info.library_crosses_hosts));
  HETCCL_TRY(read(object, "shared_memory", info.shared_memory));
  HETCCL_TRY(read(object, "window_bytes", kMaxWindowBytes, info.window_bytes));
  HETCCL_TRY(decode_nics(object, info.nics));
  return info;
}

/// A rank on an adaptor's device must name its library. Without a library, an unknown vendor is a
/// misspelling, and would be planned as a device without known properties.
Status check_vendor(const RankInfo& info, const AdaptorTraits& traits) {
  const auto& known = traits.libraries;
  if (known.empty() || known.contains(info.vendor) || !info.library.empty()) return {};
  std::string names;
  for (const auto& [vendor, library] : known) names += (names.empty() ? "" : ", ") + vendor;
  return error(ErrorCode::InvalidArgument,
               "there is no vendor \"%.80s\": give %s, or an adaptor's device, "
               "whose \"library\" must be given too",
               info.vendor.c_str(), names.c_str());
}

Result<std::vector<Measurement>> decode_measurements(const Json& list) {
  const auto* entries = list.elements();
  if (entries == nullptr || entries->size() > kMaxMeasurements) {
    return error(ErrorCode::InvalidArgument, "measurements must be an array of at most %zu",
                 kMaxMeasurements);
  }
  std::vector<Measurement> measured;
  for (const Json& entry : *entries) {
    if (entry.members() == nullptr) {
      return error(ErrorCode::InvalidArgument, "a measurement must be an object");
    }
    Measurement& one = measured.emplace_back();
    HETCCL_TRY(read(entry, "a", kMaxRanks - 1, one.a).with("a measurement"));
    HETCCL_TRY(read(entry, "b", kMaxRanks - 1, one.b).with("a measurement"));
    HETCCL_TRY(read(entry, "latency_ns", kMaxLatencyNs, one.latency_ns).with("a measurement"));
    HETCCL_TRY(read(entry, "mbps", kMaxMbps, one.mbps).with("a measurement"));
  }
  return measured;
}

}  // namespace

std::string to_json(const std::vector<Measurement>& measured) {
  return Json(encode(measured)).dump();
}

Result<std::vector<Measurement>> measurements_from_json(std::string_view text,
                                                        const Topology& topology) {
  HETCCL_ASSIGN(const Json json, Json::parse(text, "a rank's measurements", kMaxInfoBytes));
  HETCCL_ASSIGN(auto measured, decode_measurements(json));
  HETCCL_TRY(topology.check(measured));
  return measured;
}

std::string to_json(const RankInfo& info) {
  return encode(info).dump();
}

Result<RankInfo> rank_info_from_json(std::string_view text) {
  HETCCL_ASSIGN(const Json json, Json::parse(text, "a rank's description", kMaxInfoBytes));
  return decode(json, {});
}

std::string Topology::to_json() const {
  std::vector<Json> ranks, clusters, links;
  for (const RankInfo& info : infos_) ranks.push_back(encode(info));
  for (const Cluster& cluster : clusters_) {
    std::vector<Json> cards;  // names, by rank
    for (int rank : cluster.ranks) {
      std::vector<std::string> names;
      for (const Nic& nic : this->cards(rank)) names.push_back(nic.name);
      cards.emplace_back(std::move(names));
    }
    clusters.push_back({{"vendor", cluster.vendor},
                        {"label", cluster.label},
                        {"ranks", cluster.ranks},
                        {"border", cluster.border},
                        {"shares", cluster.shares},
                        {"cards", std::move(cards)},
                        {"kernels", cluster.kernels},
                        {"exchanges", cluster.exchanges}});
  }
  for (const Link& link : links_) {
    links.push_back({{"a", link.a}, {"b", link.b}, {"kind", link.kind}, {"mbps", link.mbps}});
  }
  const Json json = {{"ranks", std::move(ranks)},
                     {"clusters", std::move(clusters)},
                     {"links", std::move(links)},
                     {"measured", encode(measured_)}};
  return json.dump(1);
}

Result<Topology> Topology::from_json(std::string_view text, const AdaptorTraits& traits) {
  HETCCL_ASSIGN(const Json json, Json::parse(text, "a topology", kMaxTopologyBytes));
  const auto* ranks = json["ranks"].elements();
  if (ranks == nullptr || ranks->size() > static_cast<size_t>(kMaxRanks)) {
    return error(ErrorCode::InvalidArgument,
                 "a topology must be {\"ranks\": [...]} with at most %lld ranks",
                 static_cast<long long>(kMaxRanks));
  }
  std::vector<RankInfo> infos;
  for (const Json& entry : *ranks) {
    Result<RankInfo> info = decode(entry, traits);
    const Status status = info.ok() ? check_vendor(*info, traits) : info.status();
    if (!status.ok()) return status.with(format("rank at place %zu", infos.size()));
    infos.push_back(std::move(info).value());
  }
  // Derives clusters and links from the ranks; those in the text are only for people.
  HETCCL_ASSIGN(Topology topology, build(std::move(infos), traits));
  const Json* list = json.find("measured");
  if (list == nullptr) return topology;
  HETCCL_ASSIGN(auto measured, decode_measurements(*list));
  return topology.with(std::move(measured));
}

}  // namespace hetccl::topology
