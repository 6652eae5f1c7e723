#include "plan/call.h"

#include <algorithm>

namespace hetccl::plan {

bool is_pairwise(Collective collective) {
  return collective == Collective::Gather || collective == Collective::Scatter ||
         collective == Collective::AllToAll;
}

bool sends(Collective collective, int root, int rank) {
  const bool root_alone = collective == Collective::Broadcast || collective == Collective::Scatter;
  return collective != Collective::Barrier && (!root_alone || rank == root);
}

bool receives(Collective collective, int root, int rank) {
  const bool root_alone = collective == Collective::Reduce || collective == Collective::Gather;
  return collective != Collective::Barrier && (!root_alone || rank == root);
}

Spec spec_of(const Signature& call) {
  return {.collective = call.collective,
          .root = is_rooted(call.collective) ? call.root : 0,
          .average = reduces(call.collective) && call.op == RedOp::Avg,
          .scale = reduces(call.collective) && call.op == RedOp::PreMulSum};
}

uint32_t send_blocks(Collective collective, uint32_t n_ranks) {
  const bool many = collective == Collective::ReduceScatter || collective == Collective::Scatter ||
                    collective == Collective::AllToAll;
  return many ? n_ranks : 1;
}

uint32_t recv_blocks(Collective collective, uint32_t n_ranks) {
  const bool many = collective == Collective::AllGather || collective == Collective::Gather ||
                    collective == Collective::AllToAll;
  return many ? n_ranks : 1;
}

Status check(const Signature& call, uint32_t n_ranks) {
  if (!is_valid(call.type)) {
    return error(Code::InvalidArgument, "datatype %d is none that hetccl knows",
                 static_cast<int>(call.type));
  }
  if (reduces(call.collective) && !is_valid(call.op)) {
    return error(Code::InvalidArgument, "op %d is none that hetccl knows",
                 static_cast<int>(call.op));
  }
  if (reduces(call.collective) && !applies(call.op, call.type)) {
    return error(Code::InvalidArgument,
                 "%s combines the bits of integers, and %s is none: pass an integer type",
                 std::string(name_of(call.op)).c_str(), std::string(name_of(call.type)).c_str());
  }
  if (call.root < 0 || static_cast<uint32_t>(call.root) >= n_ranks) {
    return error(Code::InvalidArgument, "root is %d: it must be from 0 to %u", call.root,
                 n_ranks - 1);
  }
  const uint64_t blocks =
      std::max(send_blocks(call.collective, n_ranks), recv_blocks(call.collective, n_ranks));
  uint64_t bytes = 0;
  if (__builtin_mul_overflow(call.count, size_of(call.type) * blocks, &bytes) ||
      bytes > (1ULL << 62)) {
    return error(Code::InvalidArgument, "count %llu is too large",
                 static_cast<unsigned long long>(call.count));
  }
  return {};
}

Status check_operator(const Signature& call, const topology::Topology& topology) {
  if (!reduces(call.collective) || !is_bitwise(call.op)) return {};
  for (const topology::Cluster& cluster : topology.clusters()) {
    if (cluster.ranks.size() < 2 || cluster.vendor == "host") continue;
    const auto first = static_cast<size_t>(cluster.ranks.front());
    return error(Code::Unsupported,
                 "ranks %d and %d are in one cluster of GPUs, where %s reduces, and it has no "
                 "operator %s: reduce on the host, or give each GPU its own HETCCL_CLUSTER",
                 cluster.ranks[0], cluster.ranks[1], topology.infos()[first].library.c_str(),
                 std::string(name_of(call.op)).c_str());
  }
  return {};
}

}  // namespace hetccl::plan
