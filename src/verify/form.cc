// Checks each plan on its own.
#include <algorithm>
#include <map>
#include <tuple>

#include "plan/call.h"
#include "verify/problem.h"

namespace hetccl::verify {
namespace {

using plan::Buffer;
using plan::kMaxReduceSources;
using plan::RankPlan;
using plan::Region;
using plan::ShardRegion;
using plan::Spec;
using plan::StepKind;

bool is_ccl(StepKind kind) {
  return kind == StepKind::CclReduce || kind == StepKind::CclBroadcast ||
         kind == StepKind::CclAllReduce || kind == StepKind::CclExchange ||
         kind == StepKind::CclBarrier;
}

/// Calls `visit` for the plan's regions that are parts of a slice.
template <typename Visit>
void for_each_region(const RankPlan& plan, Visit&& visit) {
  for (const plan::Step& step : plan.steps) {
    for (const ShardRegion& shard : step.shards) visit(shard.send), visit(shard.recv);
    for (const plan::TransferRegion& transfer : step.transfers) visit(transfer.region);
    for (const Region& src : step.srcs) visit(src);
    visit(step.dst);
  }
}

struct Form {
  const Spec& spec;
  const topology::Topology& topology;
  const RankPlan& plan;
  int rank;

  [[nodiscard]] int cluster_size() const {
    const auto c = static_cast<size_t>(topology.cluster_of(rank));
    return static_cast<int>(topology.clusters()[c].ranks.size());
  }

  [[nodiscard]] bool valid(const Region& region) const {
    const uint32_t blocks = region.buffer == Buffer::Output    ? plan.output_blocks
                            : region.buffer == Buffer::Scratch ? plan.scratch_blocks
                                                               : plan.input_blocks;
    const bool of_input = region.buffer != Buffer::Scratch || region.of < plan.input_blocks;
    return region.block < blocks && of_input && region.begin.den > 0 && region.end.den > 0 &&
           !(region.end < region.begin) && region.end.num <= region.end.den &&
           (!is_in_run(region) || valid_in_run(region));
  }
  [[nodiscard]] static bool is_in_run(const Region& region) {
    return region.run > 0 || region.blocks != 1;
  }
  [[nodiscard]] bool valid_in_run(const Region& region) const {
    return region.buffer == Buffer::Scratch && region.begin.num == 0 &&
           region.end.num == region.end.den && region.run <= region.block && region.blocks > 0 &&
           region.blocks <= plan.scratch_blocks - region.block;
  }
  [[nodiscard]] uint64_t unit_of(const Region& region) const {
    return verify::unit_of(spec, topology.n_ranks(), rank, region);
  }
  /// Encoded data must be in scratch, and steps that move it must not add.
  [[nodiscard]] bool may_be_encoded(const plan::Step& step, const Region& region) const {
    if (!region.encoded) return true;
    const bool moves = step.kind == StepKind::Send || step.kind == StepKind::Recv ||
                       step.kind == StepKind::Reduce || step.kind == StepKind::Copy ||
                       step.kind == StepKind::CclBroadcast || step.kind == StepKind::CclExchange;
    return moves && !plan.encoding.is_none() && plan.encoding == spec.encoding &&
           region.buffer == Buffer::Scratch && !is_in_run(region);
  }
  [[nodiscard]] bool readable(const Region& region) const {
    return valid(region) && region.buffer != Buffer::Identity;
  }
  [[nodiscard]] bool writable(const Region& region) const {
    // A barrier's messages are empty and name the output.
    const bool has_output =
        spec.collective == Collective::Barrier || plan::receives(spec.collective, spec.root, rank);
    return readable(region) && region.buffer != Buffer::Input &&
           (region.buffer != Buffer::Output || has_output);
  }

  [[nodiscard]] const char* fault_of_shards(const plan::Step& step) const {
    const int local = topology.local_rank(rank);
    for (const ShardRegion& shard : step.shards) {
      if (shard.root < 0 || shard.root >= cluster_size()) return "a root outside the cluster";
      if (shard.receiver < -1 || shard.receiver >= cluster_size())
        return "a receiver outside the cluster";
      if (!same_part(shard.send, shard.recv)) return "a shard whose parts of a slice differ";
      const bool reads = plan::reads_send(step.kind, shard, local);
      const bool writes = plan::writes_recv(step.kind, shard, local);
      if (reads && writes && unit_of(shard.send) != unit_of(shard.recv))
        return "a shard whose lengths differ";
      const bool adds_nothing =
          step.kind == StepKind::CclReduce && shard.send.buffer == Buffer::Identity;
      if (reads && !(adds_nothing ? valid(shard.send) : readable(shard.send)))
        return "a bad send region";
      if (writes && !writable(shard.recv)) return "a bad recv region";
    }
    return nullptr;
  }

  [[nodiscard]] const char* fault_of_transfers(const plan::Step& step) const {
    for (const plan::TransferRegion& transfer : step.transfers) {
      if (transfer.peer < 0 || transfer.peer >= cluster_size()) return "a peer outside the cluster";
      const bool fits = transfer.send ? readable(transfer.region) : writable(transfer.region);
      const bool part =
          transfer.region.buffer == Buffer::Scratch || !same_part(transfer.region, Region{});
      if (step.whole && part) return "an exchange of whole blocks that names a part of one";
      if (!fits) return transfer.send ? "a bad sent region" : "a bad received region";
    }
    return nullptr;
  }

  [[nodiscard]] const char* fault_of_encoded(const plan::Step& step) const {
    bool may = may_be_encoded(step, step.dst);
    for (const Region& src : step.srcs) may = may && may_be_encoded(step, src);
    for (const ShardRegion& shard : step.shards) {
      may = may && may_be_encoded(step, shard.send) && may_be_encoded(step, shard.recv);
      if (shard.send.encoded != shard.recv.encoded ||
          shard.recv.encoded != step.shards.front().recv.encoded) {
        return "encoded shards beside others";
      }
    }
    for (const plan::TransferRegion& transfer : step.transfers) {
      may = may && may_be_encoded(step, transfer.region);
      if (transfer.region.encoded != step.transfers.front().region.encoded) {
        return "encoded messages beside others";
      }
    }
    if (!may) return "encoded data where they cannot be";
    const bool copies = step.kind == StepKind::Copy;
    if (copies && !step.srcs.empty() && step.srcs[0].encoded != step.dst.encoded) {
      return "a copy that would have to convert";
    }
    return nullptr;
  }

  [[nodiscard]] const char* fault_of_regions(const plan::Step& step) const {
    const bool has_dst = step.kind == StepKind::CclAllReduce || step.kind == StepKind::Recv ||
                         step.kind == StepKind::Reduce || step.kind == StepKind::Copy;
    const bool has_src = has_dst ? step.kind != StepKind::Recv : step.kind == StepKind::Send;
    if (has_dst && !writable(step.dst)) return "a bad dst region";
    if (has_src && step.srcs.empty()) return "no source";
    if (step.scale && step.kind != StepKind::Reduce && step.kind != StepKind::CclReduce &&
        step.kind != StepKind::CclAllReduce) {
      return "a factor where nothing is reduced";
    }
    if (step.srcs.size() > (step.kind == StepKind::Reduce ? kMaxReduceSources : 1)) {
      return "too many sources";
    }
    for (const Region& src : step.srcs) {
      if (!readable(src)) return "a bad src region";
      if (has_dst && (!same_part(src, step.dst) || unit_of(src) != unit_of(step.dst)))
        return "src and dst that are different parts";
    }
    return nullptr;
  }

  [[nodiscard]] const char* fault_of(size_t index) const {
    const plan::Step& step = plan.steps[index];
    for (uint16_t dep : step.deps) {
      if (dep >= index) return "a dependency on a later step: it waits for itself";
      if (plan.steps[dep].stage > step.stage) return "a dependency on a later stage";
    }
    if (step.stage >= plan.stages) return "a stage beyond the plan's last";
    if (is_ccl(step.kind) && cluster_size() < 2) return "a vendor call in a cluster of one rank";
    if (step.kind == StepKind::Send || step.kind == StepKind::Recv) {
      if (step.peer < 0 || step.peer >= topology.n_ranks() || step.peer == rank)
        return "a bad peer";
    }
    if (const char* fault = fault_of_shards(step)) return fault;
    if (const char* fault = fault_of_transfers(step)) return fault;
    if (const char* fault = fault_of_encoded(step)) return fault;
    return fault_of_regions(step);
  }
};

/// Fractions of blocks with different lengths would overlap, and so would blocks of two runs.
bool has_one_block_of_scratch(const RankPlan& plan) {
  // Input block, index in the run, and whether it is encoded.
  using Origin = std::tuple<uint32_t, uint32_t, bool>;
  std::map<uint32_t, Origin> origins;
  bool is = true;
  for_each_region(plan, [&](const Region& region) {
    if (region.buffer != Buffer::Scratch) return;
    for (uint32_t i = 0; i < region.blocks && i < plan.scratch_blocks; ++i) {
      const Origin origin{region.of, region.run + i, region.encoded};
      is &= origins.try_emplace(region.block + i, origin).first->second == origin;
    }
  });
  for (const auto& [block, origin] : origins) {
    const auto before = origins.find(block - 1);
    const auto& [of, run, encoded] = origin;
    is &= run == 0 || (before != origins.end() && before->second == Origin{of, run - 1, encoded});
  }
  return is;
}

}  // namespace

Status check_form(const Spec& spec, const topology::Topology& topology,
                  std::span<const RankPlan> plans) {
  const auto n_ranks = static_cast<uint32_t>(topology.n_ranks());
  if (plans.size() != n_ranks) {
    return error(ErrorCode::InvalidArgument, "%zu plans for %u ranks", plans.size(), n_ranks);
  }
  for (int rank = 0; rank < topology.n_ranks(); ++rank) {
    const RankPlan& plan = plans[static_cast<size_t>(rank)];
    if (plan.stages != plans[0].stages) {
      return error(ErrorCode::InternalError, "rank %d's plan has %d stages, rank 0's %d", rank,
                   plan.stages, plans[0].stages);
    }
    if (plan.input_blocks != plan::send_blocks(spec.collective, n_ranks) ||
        plan.output_blocks != plan::recv_blocks(spec.collective, n_ranks)) {
      return error(ErrorCode::InternalError, "rank %d's plan has %u input and %u output blocks",
                   rank, plan.input_blocks, plan.output_blocks);
    }
    const Form form{spec, topology, plan, rank};
    if (!has_one_block_of_scratch(plan)) {
      return error(ErrorCode::InternalError, "rank %d's plan keeps parts of several blocks in one",
                   rank);
    }
    for (size_t s = 0; s < plan.steps.size(); ++s) {
      if (const char* fault = form.fault_of(s)) {
        return error(ErrorCode::InternalError, "rank %d, step %zu has %s", rank, s, fault);
      }
    }
  }
  return {};
}

}  // namespace hetccl::verify
