#include "plan/call.h"

#include <algorithm>

#include "base/encoding.h"
#include "base/reduce.h"

namespace hetccl::plan {
namespace {

std::string library_of(const topology::RankInfo& info) {
  return info.library_version.empty() ? info.library : info.library + " " + info.library_version;
}

// The error names the first rank that lacks the reduction, the same one on every rank.
Status refuse_reduction(const Signature& call, const topology::Topology& topology) {
  const std::string type(name_of(call.type)), op(name_of(call.op));
  for (const topology::RankInfo& info : topology.infos()) {
    const int rank = info.rank;
    if (topology.reduces_by_library(rank) && !info.library_reduces.has(call.type, call.op)) {
      return error(ErrorCode::Unsupported,
                   "rank %d cannot reduce %s by %s: its cluster reduces by %s, which lacks this%s: "
                   "use another type or operator, or host memory, or give each rank its own "
                   "HETCCL_CLUSTER",
                   rank, type.c_str(), op.c_str(), library_of(info).c_str(),
                   info.architecture.empty() ? "" : (" on " + info.architecture).c_str());
    }
  }
  return {};
}

// Whether inputs are scaled before they are added. Sums of floats may overflow even if their mean
// does not. Inside one cluster the library's own average avoids that, and so do our kernels as long
// as one step adds all sources.
bool scales_average(const Signature& call, const topology::Topology& topology) {
  const bool adds_in_steps =
      topology.clusters().size() > 1 ||
      (!call.encoding.is_none() && topology.n_ranks() > static_cast<int>(kMaxReduceSources));
  return call.op == RedOp::Avg && adds_in_steps &&
         has_down(call.type, static_cast<uint32_t>(topology.n_ranks()));
}

Status refuse_sending(const topology::Topology& topology) {
  for (const topology::RankInfo& info : topology.infos()) {
    if (!topology.reduces_by_library(info.rank) || info.library_sends) continue;
    return error(ErrorCode::Unsupported,
                 "rank %d cannot pass its part of a reduction to the root: %s, the library of its "
                 "cluster, does not send between two ranks: use all_reduce, or give each rank its "
                 "own HETCCL_CLUSTER",
                 info.rank, library_of(info).c_str());
  }
  return {};
}

}  // namespace

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

Spec spec_of(const Signature& call, const topology::Topology& topology) {
  const bool adds = reduces(call.collective), scales = adds && scales_average(call, topology);
  return {.collective = call.collective,
          .root = is_rooted(call.collective) ? call.root : 0,
          .average = adds && call.op == RedOp::Avg,
          .scale = scales || (adds && call.op == RedOp::PreMulSum),
          .scale_apart = scales && !topology.reductions().has(call.type, RedOp::PreMulSum),
          .uneven = is_pairwise(call.collective) && call.uneven,
          .encoding = call.encoding};
}

bool can_encode(const Signature& call, const topology::Topology& topology, bool inside) {
  if (call.uneven || !has_encoding(call.type)) return false;
  const bool alone = topology.clusters().size() < 2;
  if (alone && !(inside && topology.clusters().front().exchanges)) return false;
  if (call.collective == Collective::AllGather) return true;
  const bool adds = call.op == RedOp::Sum || call.op == RedOp::Avg || call.op == RedOp::PreMulSum;
  const bool scatters = call.collective == Collective::ReduceScatter;
  return (scatters || call.collective == Collective::AllReduce) && adds;
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
    return error(ErrorCode::InvalidArgument, "datatype %d is none that hetccl knows",
                 static_cast<int>(call.type));
  }
  if (reduces(call.collective) && !is_valid(call.op)) {
    return error(ErrorCode::InvalidArgument, "op %d is none that hetccl knows",
                 static_cast<int>(call.op));
  }
  if (reduces(call.collective) && !applies(call.op, call.type)) {
    return error(ErrorCode::InvalidArgument,
                 "%s combines the bits of integers, and %s is none: pass an integer type",
                 std::string(name_of(call.op)).c_str(), std::string(name_of(call.type)).c_str());
  }
  if (call.root < 0 || static_cast<uint32_t>(call.root) >= n_ranks) {
    return error(ErrorCode::InvalidArgument, "root is %d: it must be from 0 to %u", call.root,
                 n_ranks - 1);
  }
  const uint64_t blocks =
      std::max(send_blocks(call.collective, n_ranks), recv_blocks(call.collective, n_ranks));
  uint64_t bytes = 0;
  if (__builtin_mul_overflow(call.count, size_of(call.type) * blocks, &bytes) ||
      bytes > (1ULL << 62)) {
    return error(ErrorCode::InvalidArgument, "count %llu is too large",
                 static_cast<unsigned long long>(call.count));
  }
  return {};
}

Status check_support(const Signature& call, const topology::Topology& topology) {
  if (!reduces(call.collective)) return {};
  if (!topology.reductions().has(call.type, call.op)) return refuse_reduction(call, topology);
  const bool gathers = call.collective == Collective::Reduce && topology.clusters().size() > 1;
  return gathers && !topology.libraries_can_send() ? refuse_sending(topology) : Status();
}

}  // namespace hetccl::plan
