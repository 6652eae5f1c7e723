// Derives slices and block lengths of a call.
#include "verify/problem.h"

#include <algorithm>

#include "plan/call.h"

namespace hetccl::verify {

uint32_t Problem::most_slices() const {
  return *std::max_element(n_slices.begin(), n_slices.end());
}

std::vector<std::vector<int>> Problem::libraries() const {
  if (by_library) return {{std::min(spec.root, to), std::max(spec.root, to)}};
  std::vector<std::vector<int>> all;
  for (const topology::Cluster& cluster : topology.clusters()) all.push_back(cluster.ranks);
  return all;
}

int Problem::local_rank(int rank) const {
  if (by_library) return rank == std::min(spec.root, to) ? 0 : 1;
  return topology.local_rank(rank);
}

bool Problem::launches(int rank) const {
  return spec.collective != Collective::PointToPoint || rank == spec.root || rank == to;
}

bool Problem::receives(int rank) const {
  if (spec.collective == Collective::PointToPoint) return rank == to;
  return plan::receives(spec.collective, spec.root, rank);
}

uint64_t Problem::length_of(int rank, const plan::Region& region) const {
  return lengths.empty() ? length : lengths[unit_of(spec, n_ranks(), rank, region)];
}

uint32_t Problem::slices_of(int rank, const plan::Region& region) const {
  if (lengths.empty()) return n_slices[static_cast<size_t>(rank)];
  const uint64_t slice = geometries[static_cast<size_t>(rank)].slice_elements;
  return static_cast<uint32_t>((length_of(rank, region) + slice - 1) / slice);
}

size_t Problem::bytes_of(int rank, const plan::Region& region, uint32_t k) const {
  const uint64_t slice = geometries[static_cast<size_t>(rank)].slice_elements;
  const uint64_t grain = plan::grain_of(type, spec.encoding);
  return plan::bytes_of(region, plan::part_of(region, length_of(rank, region), slice, k, grain),
                        type, spec.encoding);
}

uint64_t unit_of(const plan::Spec& spec, int n_ranks, int rank, const plan::Region& region) {
  const bool encoded_gather = spec.collective == Collective::AllGather && !spec.encoding.is_none();
  if (encoded_gather || (plan::is_pairwise(spec.collective) && !spec.uneven)) {
    return 0;  // all blocks are alike
  }
  const auto own = static_cast<uint64_t>(rank), n = static_cast<uint64_t>(n_ranks);
  const bool input = region.buffer != plan::Buffer::Output;
  const uint64_t block = region.buffer == plan::Buffer::Scratch ? region.of : region.block;
  switch (spec.collective) {
    case Collective::ReduceScatter:
    case Collective::Scatter:
      return input ? block : own;
    case Collective::AllGather:
    case Collective::Gather:
      return input ? own : block;
    case Collective::AllToAll:
      return input ? own * n + block : block * n + own;
    default:
      return 0;
  }
}

bool same_part(const plan::Region& a, const plan::Region& b) {
  return a.begin == b.begin && a.end == b.end && a.blocks == b.blocks;
}

}  // namespace hetccl::verify
