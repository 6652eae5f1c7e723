#include "plan/verify_model.h"

#include <algorithm>
#include <map>

#include "plan/schedule.h"

namespace hetccl::plan {
namespace {

bool same_call(const Step& a, const Step& b) {
  if (a.kind != b.kind || a.stage != b.stage || a.average != b.average || a.scale != b.scale ||
      a.apart != b.apart)
    return false;
  return std::equal(a.shards.begin(), a.shards.end(), b.shards.begin(), b.shards.end(),
                    [](const ShardRegion& x, const ShardRegion& y) {
                      return x.root == y.root && x.receiver == y.receiver &&
                             same_part(x.send, y.send);
                    });
}

}  // namespace

uint64_t unit_of(const Spec& spec, int n_ranks, int rank, const Region& region) {
  const auto own = static_cast<uint64_t>(rank), n = static_cast<uint64_t>(n_ranks);
  const bool input = region.buffer != Buffer::Output;
  const uint64_t block = region.buffer == Buffer::Scratch ? region.of : region.block;
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

VerifyModel::VerifyModel(const Spec& spec, const topology::Topology& topology,
                         std::span<const RankPlan> plans)
    : spec_(spec), topology_(&topology), plans_(plans) {
  for (int rank = 0; rank < n_ranks(); ++rank) {
    first_.push_back(n_steps());
    rank_of_.insert(rank_of_.end(), plan(rank).steps.size(), rank);
  }
  match_.assign(rank_of_.size(), 0);
}

Result<VerifyModel> VerifyModel::build(const Spec& spec, const topology::Topology& topology,
                                       std::span<const RankPlan> plans) {
  HETCCL_TRY(check_form(spec, topology, plans));
  VerifyModel model(spec, topology, plans);
  model.collect_cuts();
  HETCCL_TRY(model.match_messages());
  HETCCL_TRY(model.match_ccl_calls());
  return model;
}

void VerifyModel::collect_cuts() {
  cuts_ = {{0, 1}, {1, 1}};
  for (const RankPlan& plan : plans_) {
    for_each_region(plan, [&](const Region& region) {
      cuts_.push_back(region.begin);
      cuts_.push_back(region.end);
    });
  }
  std::sort(cuts_.begin(), cuts_.end());
  cuts_.erase(std::unique(cuts_.begin(), cuts_.end()), cuts_.end());
}

Status VerifyModel::match_messages() {
  std::map<std::pair<int, int>, std::vector<StepId>> sends, recvs;  // by sender and receiver
  for (int rank = 0; rank < n_ranks(); ++rank) {
    for_each_issue(plan(rank), 0, 1, [&](Issue issue) {
      const Step& s = plan(rank).steps[issue.step];
      if (s.kind == StepKind::Send) sends[{rank, s.peer}].push_back(id(rank, issue.step));
      if (s.kind == StepKind::Recv) recvs[{s.peer, rank}].push_back(id(rank, issue.step));
    });
  }
  for (const auto& [ends, list] : recvs) sends.try_emplace(ends);
  for (const auto& [ends, sent] : sends) {
    const std::vector<StepId>& received = recvs[ends];
    if (sent.size() != received.size()) {
      return error(Code::InternalError, "rank %d sends %zu messages to rank %d, which receives %zu",
                   ends.first, sent.size(), ends.second, received.size());
    }
    for (size_t i = 0; i < sent.size(); ++i) {
      const Step &s = step(sent[i]), &r = step(received[i]);
      const uint64_t sent_unit = unit_of(spec_, n_ranks(), ends.first, s.srcs[0]);
      if (s.message != r.message || s.stage != r.stage || !same_part(s.srcs[0], r.dst) ||
          sent_unit != unit_of(spec_, n_ranks(), ends.second, r.dst)) {
        return error(Code::InternalError, "unmatched: %s meets %s", describe(sent[i]).c_str(),
                     describe(received[i]).c_str());
      }
      match_[sent[i]] = received[i];
      match_[received[i]] = sent[i];
    }
  }
  return {};
}

Status VerifyModel::match_ccl_calls() {
  for (size_t c = 0; c < topology_->clusters().size(); ++c) {
    const std::vector<int>& ranks = topology_->clusters()[c].ranks;
    const size_t first_group = groups_.size();
    for (size_t local = 0; local < ranks.size(); ++local) {
      size_t group = first_group;
      Status mismatch;
      for_each_issue(plan(ranks[local]), 0, 1, [&](Issue issue) {
        const StepId self = id(ranks[local], issue.step);
        if (!is_ccl(step(self).kind) || !mismatch.ok()) return;
        if (local == 0) groups_.push_back({static_cast<int>(c), {}});
        if (group == groups_.size() ||
            (local > 0 && !same_call(step(self), step(groups_[group].members[0])))) {
          mismatch = error(Code::InternalError, "%s meets no equal call of rank %d",
                           describe(self).c_str(), ranks[0]);
          return;
        }
        match_[self] = static_cast<uint32_t>(group);
        groups_[group++].members.push_back(self);
      });
      HETCCL_TRY(mismatch);
      if (group != groups_.size()) {
        return error(Code::InternalError, "%s: rank %d of the cluster does not take part",
                     describe(groups_[group].members[0]).c_str(), ranks[local]);
      }
    }
  }
  return {};
}

uint32_t VerifyModel::n_locations(int rank) const {
  const RankPlan& p = plan(rank);
  return p.input_blocks + p.output_blocks + p.scratch_blocks;
}

CellRange VerifyModel::cells(int rank, const Region& region, bool in_place) const {
  const RankPlan& p = plan(rank);
  const auto own = static_cast<uint32_t>(rank);
  const bool is_root = rank == spec_.root;
  in_place = in_place && spec_.collective != Collective::AllToAll;  // which cannot be
  const bool gathers = spec_.collective == Collective::AllGather ||
                       (spec_.collective == Collective::Gather && is_root);
  const bool scatters = spec_.collective == Collective::ReduceScatter ||
                        (spec_.collective == Collective::Scatter && is_root);
  CellRange range;
  // In place, the smaller buffer is a block of the other (hetccl.h).
  if (region.buffer == Buffer::Scratch) {
    range.location = p.input_blocks + p.output_blocks + region.block;
  } else if (region.buffer == Buffer::Input) {
    range.location = in_place && gathers ? p.input_blocks + own : region.block;
  } else {
    range.location = !in_place || gathers ? p.input_blocks + region.block
                     : scatters           ? own
                                          : region.block;
  }
  const auto index = [&](Fraction f) {
    return static_cast<uint32_t>(std::lower_bound(cuts_.begin(), cuts_.end(), f) - cuts_.begin());
  };
  range.begin = index(region.begin);
  range.end = index(region.end);
  return range;
}

std::vector<Access> VerifyModel::accesses(StepId id, bool in_place) const {
  const Step& s = step(id);
  const int rank = rank_of(id), local = topology_->local_rank(rank);
  std::vector<Access> result;
  const auto add = [&](const Region& region, bool write, size_t lane) {
    if (region.buffer == Buffer::Identity) return;
    const CellRange range = cells(rank, region, in_place);
    const auto same = [&](const Access& a) {
      return a.lane == lane && a.cells.location == range.location && a.cells.begin == range.begin &&
             a.cells.end == range.end;
    };
    const bool onto_itself = write &&
                             (s.kind == StepKind::Copy || s.kind == StepKind::CclBroadcast) &&
                             std::any_of(result.begin(), result.end(), same);
    if (range.begin < range.end && !onto_itself) {
      result.push_back({range, write, static_cast<uint32_t>(lane)});
    }
  };
  for (size_t i = 0; i < s.shards.size(); ++i) {
    if (reads_send(s.kind, s.shards[i], local)) add(s.shards[i].send, false, i);
    if (writes_recv(s.kind, s.shards[i], local)) add(s.shards[i].recv, true, i);
  }
  for (const Region& src : s.srcs) add(src, false, 0);
  if (s.kind == StepKind::Recv || s.kind == StepKind::Reduce || s.kind == StepKind::Copy ||
      s.kind == StepKind::CclAllReduce) {
    add(s.dst, true, 0);
  }
  return result;
}

std::string VerifyModel::describe(StepId id) const {
  const Step& s = step(id);
  const int rank = rank_of(id);
  const std::string head = format("rank %d, step %u", rank, id - first_[static_cast<size_t>(rank)]);
  switch (s.kind) {
    case StepKind::Send:
      return head + format(" (send message %u to rank %d)", s.message, s.peer);
    case StepKind::Recv:
      return head + format(" (receive message %u from rank %d)", s.message, s.peer);
    case StepKind::Reduce:
      return head + " (reduce)";
    case StepKind::Copy:
      return head + " (copy)";
    default:
      return head + format(" (vendor call at stage %d)", s.stage);
  }
}

}  // namespace hetccl::plan
