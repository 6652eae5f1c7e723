#include "plan/algorithms.h"

#include <algorithm>

#include "plan/planners.h"

namespace hetccl::plan {
namespace {

using enum Collective;
using topology::Topology;

size_t n_clusters(const Topology& topology) {
  return topology.clusters().size();
}

bool in_one_cluster(const Topology& topology, const Spec&) {
  return n_clusters(topology) == 1;
}

/// Whether one library can make the whole call: it exchanges messages, or there is one rank, which
/// copies.
bool exchanges_in_one_cluster(const Topology& topology, const Spec&) {
  const topology::Cluster& first = topology.clusters().front();
  return n_clusters(topology) == 1 && (first.exchanges || first.ranks.size() == 1);
}

bool needs_messages(const Topology& topology, const Spec& spec) {
  return !exchanges_in_one_cluster(topology, spec);
}

/// Whether the call is encoded and its ranks are in one cluster, whose library exchanges messages.
bool encodes_inside(const Topology& topology, const Spec& spec) {
  return n_clusters(topology) == 1 && topology.clusters().front().exchanges &&
         !spec.encoding.is_none();
}

bool between_clusters(const Topology& topology, const Spec&) {
  return n_clusters(topology) > 1;
}

bool between_or_encoded(const Topology& topology, const Spec& spec) {
  return between_clusters(topology, spec) || encodes_inside(topology, spec);
}

/// With two clusters, one hop already loads every link the least.
bool over_many_clusters(const Topology& topology, const Spec&) {
  return n_clusters(topology) > 2;
}

/// Requires that all clusters add the same way. Each cluster adds for itself, and only kernels, or
/// hosts that add encoded data for devices without kernels, evaluate one expression with the same
/// bits everywhere.
bool adds_everywhere(const Topology& topology, const Spec& spec) {
  return n_clusters(topology) > 1 && (topology.kernels_everywhere() || !spec.encoding.is_none());
}

/// A mirror sends data several times, which is cheap only in the memory of one host.
bool mirrors(const Topology& topology, const Spec& spec) {
  const auto& links = topology.links();
  return spec.encoding.is_none() && topology.kernels_everywhere() && !links.empty() &&
         std::all_of(links.begin(), links.end(),
                     [](const topology::Link& link) { return link.in_memory; }) &&
         n_clusters(topology) < static_cast<size_t>(topology.n_ranks());
}

/// With two clusters that both have kernels, owners pay only if hosts leave the sums to devices.
bool has_owners(const Topology& topology, const Spec& spec) {
  return n_clusters(topology) > 1 &&
         (n_clusters(topology) > 2 || !adds_everywhere(topology, spec) ||
          topology.devices_beside_hosts() >= 0);
}

/// The ranks of a cluster gather blocks of equal length. Two ranks would save too few messages to
/// pay for passing blocks on.
bool gathers_in_clusters(const Topology& topology, const Spec& spec) {
  const auto& clusters = topology.clusters();
  const auto gathers = [](const topology::Cluster& one) {
    return one.exchanges || one.ranks.size() == 1;
  };
  return clusters.size() > 1 && !spec.uneven &&
         std::all_of(clusters.begin(), clusters.end(), gathers) &&
         std::any_of(clusters.begin(), clusters.end(),
                     [](const topology::Cluster& one) { return one.ranks.size() > 2; });
}

constexpr Collectives kVendorCalls{AllReduce, ReduceScatter, AllGather, Broadcast, Reduce, Barrier};
constexpr Collectives kPairwise{Gather, Scatter, AllToAll};

// First the row that loads every link the least, then the row with one hop.
constexpr Algorithm kAlgorithms[] = {
    {kVendorCall, kVendorCalls, true, in_one_cluster, plan_vendor},
    {"owner", Collectives{AllReduce}, true, has_owners, plan_all_reduce_owner, true},
    {"exchange", Collectives{AllReduce}, true, adds_everywhere, plan_all_reduce_exchange, true},
    {"mirror", Collectives{AllReduce}, true, mirrors, plan_all_reduce_mirror},
    {"ring", Collectives{ReduceScatter}, true, over_many_clusters, plan_reduce_scatter_ring},
    {"direct", Collectives{ReduceScatter}, true, between_clusters, plan_reduce_scatter_direct,
     true},
    {"ring", Collectives{AllGather}, true, over_many_clusters, plan_all_gather_ring, true},
    {"direct", Collectives{AllGather}, true, between_or_encoded, plan_all_gather_direct, true},
    {"mirror", Collectives{ReduceScatter}, true, mirrors, plan_reduce_scatter_mirror},
    {"mirror", Collectives{AllGather}, true, mirrors, plan_all_gather_mirror},
    {"inside", Collectives{AllReduce}, true, encodes_inside, plan_all_reduce_inside, true},
    {"inside", Collectives{ReduceScatter}, true, encodes_inside, plan_reduce_scatter_inside, true},
    {"chain", Collectives{Broadcast}, true, between_clusters, plan_broadcast_chain},
    {"star", Collectives{Broadcast}, false, over_many_clusters, plan_broadcast_star},
    {"chain", Collectives{Reduce}, true, between_clusters, plan_reduce_chain},
    {"star", Collectives{Reduce}, false, over_many_clusters, plan_reduce_star},
    {"leaders", Collectives{Barrier}, true, between_clusters, plan_barrier},
    {kVendorCall, kPairwise, true, exchanges_in_one_cluster, plan_pairwise},
    {"direct", kPairwise, false, needs_messages, plan_pairwise},
    {"gathered", Collectives{AllToAll}, false, gathers_in_clusters, plan_all_to_all_gathered},
};

std::string ids_of(const std::vector<const Algorithm*>& rows) {
  std::string text;
  for (const Algorithm* row : rows) text += (text.empty() ? "" : ", ") + std::string(row->id);
  return text;
}

}  // namespace

Algorithms algorithms() {
  return kAlgorithms;
}

std::vector<const Algorithm*> find_algorithms(const Spec& spec, const Topology& topology,
                                              Algorithms table) {
  std::vector<const Algorithm*> rows;
  for (const Algorithm& row : table) {
    const bool encodes = row.encodes || spec.encoding.is_none();
    if (row.collectives.contain(spec.collective) && encodes && row.applies(topology, spec))
      rows.push_back(&row);
  }
  return rows;
}

Result<const Algorithm*> find_algorithm(const Spec& spec, const Topology& topology,
                                        Algorithms table) {
  const std::vector<const Algorithm*> rows = find_algorithms(spec, topology, table);
  const auto named = [&](const Algorithm* row) {
    return spec.algorithm.empty() || row->id == spec.algorithm;
  };
  const auto found = std::find_if(rows.begin(), rows.end(), named);
  if (found != rows.end()) return *found;
  const std::string collective(name_of(spec.collective));
  if (rows.empty()) {
    return error(ErrorCode::InvalidArgument, "no algorithm plans %s: plan one of %s",
                 collective.c_str(), collective_names().c_str());
  }
  return error(ErrorCode::InvalidArgument,
               "the algorithm \"%s\" does not apply to %s over %zu clusters: name one of %s, or "
               "none for the first of them",
               std::string(spec.algorithm).c_str(), collective.c_str(), n_clusters(topology),
               ids_of(rows).c_str());
}

}  // namespace hetccl::plan
