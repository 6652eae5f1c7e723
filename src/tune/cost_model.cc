#include "tune/cost_model.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <utility>

#include "plan/call.h"
#include "plan/crossing.h"
#include "topology/border.h"

namespace hetccl::tune {
namespace {

using plan::Spec;
using topology::Topology;

// Measured on one host and on emulated ones (docs/benchmarks.md), from a post at one end to the
// completion at the other, with the engines awake.
constexpr double kTcpLatency = 40e-6;
constexpr double kCall = 10e-6;  // of one library call; a collective makes two
constexpr double kShmLatency = 4e-6;
constexpr double kShmBandwidth = 3e9;
// For devices that copy through pinned memory: the speed of their bus, which probes of channels do
// not measure.
constexpr double kWindowBandwidth = 40e9;
constexpr double kUnknownBandwidth = 1e9 / 8;
// For a host rank that adds received data to its own.
constexpr double kHostAdding = 5e9;
// Estimate: the cost of posting and completing a message at each end, by the threads that every
// rank of a host has.
constexpr double kMessage = 5e-6;
constexpr double kShmMessage = 1e-6;
// Estimates: the speed at which a cluster's library moves blocks to a rank that forwards them, or a
// rank copies them. For hosts, the speed of adding.
constexpr double kHostPassing = 5e9;
constexpr double kDevicePassing = 50e9;

using topology::Measurement;
using LinkClass = std::pair<std::string, int64_t>;  // links of one class are alike

LinkCost guess_of(const topology::Link& link) {
  if (link.in_memory) return {kShmLatency, kShmBandwidth};
  const double known = static_cast<double>(link.mbps) * 1e6 / 8;
  return {kTcpLatency, link.mbps > 0 ? known : kUnknownBandwidth};
}

/// Returns the most that one border rank of the cluster can send; 0: unknown.
double card_bandwidth(const Topology& topology, int cluster) {
  const topology::Cluster& one = topology.clusters()[static_cast<size_t>(cluster)];
  return static_cast<double>(cards_mbps(one, one.border.front(), topology.infos())) * 1e6 / 8;
}

/// Scales a measurement to the whole link. One rank of each cluster has measured; all border ranks
/// together are faster in proportion to their NICs.
LinkCost cost_of(const topology::Link& link, const Measurement& measured,
                 const Topology& topology) {
  LinkCost cost = guess_of(link);
  cost.latency = static_cast<double>(measured.latency_ns) * 1e-9;
  const double flow = static_cast<double>(measured.mbps) * 1e6 / 8;
  const double card = std::min(card_bandwidth(topology, link.a), card_bandwidth(topology, link.b));
  const bool published = !link.in_memory && link.mbps > 0 && card > 0;
  cost.bandwidth = published ? cost.bandwidth * std::min(1.0, flow / card) : flow;
  return cost;
}

int first_rank(int cluster, const Topology& topology) {
  return topology.clusters()[static_cast<size_t>(cluster)].ranks.front();
}

/// Returns the bytes of memory that each pair of the clusters' devices shares; 0: data goes through
/// hosts.
int64_t window_of(const topology::Link& link, const Topology& topology) {
  if (!link.in_memory) return 0;
  return topology.window(first_rank(link.a, topology), first_rank(link.b, topology));
}

/// Returns whether devices copy at both ends, because hosts cannot reach their memory.
bool by_devices(const topology::Link& link, const Topology& topology) {
  const auto host_reaches = [&](int cluster) {
    return topology.infos()[static_cast<size_t>(first_rank(cluster, topology))].host_access;
  };
  return !host_reaches(link.a) && !host_reaches(link.b);
}

/// Returns the costs of each class of links; of several measurements, the worst.
std::map<LinkClass, LinkCost> measured_classes(const Topology& topology,
                                               const std::vector<Measurement>& measured) {
  std::map<std::pair<int, int>, const Measurement*> by_ends;
  for (const Measurement& one : measured) by_ends[{one.a, one.b}] = &one;
  std::map<LinkClass, LinkCost> classes;
  for (const topology::Link& link : topology.links()) {
    const auto found = by_ends.find({link.a, link.b});
    if (found == by_ends.end() || found->second->mbps <= 0) continue;
    const LinkCost cost = cost_of(link, *found->second, topology);
    const auto [known, is_new] = classes.try_emplace({link.kind, link.mbps}, cost);
    if (is_new) continue;
    known->second.latency = std::max(known->second.latency, cost.latency);
    known->second.bandwidth = std::min(known->second.bandwidth, cost.bandwidth);
  }
  return classes;
}

/// Returns whether the collective's rows make different numbers of library calls.
bool differ_in_calls(Collective collective) {
  return collective == Collective::AllReduce || collective == Collective::AllGather ||
         collective == Collective::ReduceScatter;
}

/// Rounds a sum of fractions: three thirds are 1.
double round_sum(double blocks) {
  return std::nearbyint(blocks * 0x1p32) * 0x1p-32;
}

}  // namespace

CostModel::CostModel(const Topology& topology, const std::vector<Measurement>& measured,
                     bool deterministic) {
  if (const int devices = topology.devices_beside_hosts(); devices >= 0) hosts_ = 1 - devices;
  for (const auto& cluster : topology.clusters()) {
    clusters_.push_back({static_cast<double>(cluster.ranks.size()), 0});
    if (cluster.ranks.size() > 1) call_ = 2 * kCall;
  }
  for (const auto& info : topology.infos()) on_streams_ = on_streams_ || !info.host_access;
  const auto classes = measured_classes(topology, measured);
  slowest_.bandwidth = std::numeric_limits<double>::max();
  in_memory_ = !topology.links().empty();
  for (const auto& link : topology.links()) {
    const auto known = classes.find({link.kind, link.mbps});
    LinkCost cost = known != classes.end() ? known->second : guess_of(link);
    const int64_t window = window_of(link, topology);
    hosts_read_in_place_ = hosts_ >= 0 && window > 0;
    if (window > 0 && !deterministic) {
      if (by_devices(link, topology)) cost.bandwidth = kWindowBandwidth;
      const auto bytes = static_cast<uint64_t>(window);
      window_ = window_ == 0 ? bytes : std::min(window_, bytes);
    }
    slowest_.latency = std::max(slowest_.latency, cost.latency);
    slowest_.bandwidth = std::min(slowest_.bandwidth, cost.bandwidth);
    in_memory_ = in_memory_ && link.in_memory;
    // A link is as fast as its slower end, so a cluster's own speed shows in its fastest link.
    for (const int end : {link.a, link.b}) {
      double& bandwidth = clusters_[static_cast<size_t>(end)].bandwidth;
      bandwidth = std::max(bandwidth, cost.bandwidth);
    }
  }
  if (topology.links().empty()) slowest_ = {};
  call_ += slowest_.latency;
  double call = 0;
  for (const Measurement& one : measured) {
    if (one.a == one.b) call = std::max(call, static_cast<double>(one.latency_ns) * 1e-9);
  }
  if (call > 0) call_ = call;
  library_call_ = std::clamp((call_ - slowest_.latency) / 2, 0.0, kCall);
}

Load CostModel::load(const plan::Algorithm& row, const Spec& spec, const Topology& topology) const {
  const plan::Crossing crossing = plan::count_crossing(row, spec, topology);
  Load load{.hops = crossing.hops()};
  if (differ_in_calls(spec.collective)) {
    const plan::Algorithm& usual = *plan::find_algorithms(spec, topology).front();
    if (row.id != usual.id)
      load.extra_calls =
          crossing.library_calls - plan::count_crossing(usual, spec, topology).library_calls;
  }
  load.adds = reduces(spec.collective);
  load.encodes = !spec.encoding.is_none();
  load.fixed_slices =
      plan::is_pairwise(spec.collective) && crossing.slicing != plan::Slicing::Agreed;
  if (clusters_.size() < 2) return load;
  for (size_t rank = 0; rank < crossing.ranks.size(); ++rank) {
    const plan::Crossing::Handled& handled = crossing.ranks[rank];
    const bool host = topology.infos()[rank].host_access;
    load.messages = std::max(load.messages, handled.messages());
    load.passing_per_byte =
        std::max(load.passing_per_byte, handled.passed / (host ? kHostPassing : kDevicePassing));
  }
  for (size_t c = 0; c < clusters_.size(); ++c) {
    const auto& [sent, received] = crossing.clusters[c];
    const double blocks = round_sum(std::max(sent, received));
    double seconds = blocks / clusters_[c].bandwidth;
    if (static_cast<int>(c) == hosts_ && reduces(spec.collective)) {
      const double added = round_sum(plan::count_added(row, spec, topology, hosts_));
      seconds += added / (clusters_[c].ranks * kHostAdding);
    }
    load.blocks = std::max(load.blocks, blocks);
    load.seconds_per_byte = std::max(load.seconds_per_byte, seconds);
  }
  return load;
}

double CostModel::seconds(const Load& load, uint64_t bytes, uint64_t slices) const {
  const double wire = load.seconds_per_byte * static_cast<double>(bytes);
  const double filling = wire / static_cast<double>(std::max<uint64_t>(slices, 1));
  // A rank handles the messages of one slice while another slice's are on the wire.
  const double handling =
      static_cast<double>(load.messages) * (in_memory_ ? kShmMessage : kMessage);
  // Messages wait for the library call that gathers their blocks.
  const bool passes = load.passing_per_byte > 0;
  const double passing = passes ? kCall + load.passing_per_byte * static_cast<double>(bytes) : 0;
  return call_ + load.extra_calls * library_call_ + wire + handling + passing +
         std::max(0, load.hops - 1) * (slowest_.latency + filling);
}

}  // namespace hetccl::tune
