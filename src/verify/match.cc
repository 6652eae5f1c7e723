// Matches instructions that ranks run together: both ends of a message, all members of a library
// call.
#include <algorithm>
#include <map>

#include "plan/call.h"
#include "verify/problem.h"

namespace hetccl::verify {
namespace {

using lower::Code;
using lower::Instruction;
using lower::QueueKind;

bool same_call(const Instruction& a, const Instruction& b) {
  if (a.op != b.op || a.stage != b.stage || a.average != b.average || a.scale != b.scale ||
      a.apart != b.apart || a.whole != b.whole)
    return false;
  return std::equal(a.shards.begin(), a.shards.end(), b.shards.begin(), b.shards.end(),
                    [](const lower::Shard& x, const lower::Shard& y) {
                      return x.root == y.root && x.receiver == y.receiver &&
                             same_part(x.send.region, y.send.region);
                    });
}

class Matcher {
 public:
  Matcher(const Problem& problem, const Codes& codes) : problem_(problem), codes_(codes) {
    for (const Code& code : codes) {
      result_.other_end.emplace_back(code.messages.size(), UINT32_MAX);
      result_.group_of.emplace_back(code.list.size(), UINT32_MAX);
    }
  }

  Result<Matching> run() && {
    HETCCL_TRY(match_messages());
    HETCCL_TRY(match_calls());
    return std::move(result_);
  }

 private:
  /// Instructions of the body that `wanted` accepts, in order.
  template <typename Wanted>
  [[nodiscard]] std::vector<uint32_t> find(int rank, Wanted&& wanted) const {
    const Code& code = codes_[static_cast<size_t>(rank)];
    std::vector<uint32_t> found;
    for (uint32_t i = code.body; i < code.epilogue; ++i) {
      if (wanted(code.list[i])) found.push_back(i);
    }
    return found;
  }

  Status match_messages() {
    using Ends = std::pair<int, int>;  // sender and receiver
    std::map<Ends, std::pair<std::vector<uint32_t>, std::vector<uint32_t>>> all;
    for (int rank = 0; rank < problem_.n_ranks(); ++rank) {
      const Code& code = codes_[static_cast<size_t>(rank)];
      for (uint32_t i = code.body; i < code.epilogue; ++i) {
        const Instruction& one = code.list[i];
        if (!info_of(one.op).is(lower::OpcodeInfo::kMessage)) continue;
        const int peer = code.lanes[lower::lane_of(one.queue)].peer;
        const bool sends = lower::kind_of(one.queue) == QueueKind::Send;
        sends ? all[{rank, peer}].first.push_back(i) : all[{peer, rank}].second.push_back(i);
      }
    }
    for (const auto& [ends, lists] : all) {
      HETCCL_TRY(match_lane(ends.first, ends.second, lists.first, lists.second));
    }
    return {};
  }

  Status match_lane(int from, int to, const std::vector<uint32_t>& sent,
                    const std::vector<uint32_t>& received) {
    if (sent.size() != received.size()) {
      return error(ErrorCode::InternalError,
                   "rank %d sends %zu messages to rank %d, which receives %zu", from, sent.size(),
                   to, received.size());
    }
    const Code &sender = codes_[static_cast<size_t>(from)],
               &receiver = codes_[static_cast<size_t>(to)];
    for (size_t i = 0; i < sent.size(); ++i) {
      const Instruction &s = sender.list[sent[i]], &r = receiver.list[received[i]];
      const lower::LaneMessage &out = sender.messages[s.message],
                               &in = receiver.messages[r.message];
      const bool fits = out.number == in.number && s.stage == r.stage && s.lag == r.lag &&
                        info_of(s.op).traits == info_of(r.op).traits &&
                        same_part(out.region, in.region) &&
                        unit_of(problem_.spec, problem_.n_ranks(), from, out.region) ==
                            unit_of(problem_.spec, problem_.n_ranks(), to, in.region);
      if (!fits) {
        return error(ErrorCode::InternalError, "unmatched: %s meets %s",
                     describe(sender, from, sent[i]).c_str(),
                     describe(receiver, to, received[i]).c_str());
      }
      result_.other_end[static_cast<size_t>(from)][s.message] = r.message;
      result_.other_end[static_cast<size_t>(to)][r.message] = s.message;
    }
    return {};
  }

  Status match_calls() {
    for (const std::vector<int>& ranks : problem_.libraries()) {
      const size_t first = result_.groups.size();
      for (size_t local = 0; local < ranks.size(); ++local) {
        HETCCL_TRY(match_calls_of(ranks, local, first));
      }
      for (size_t g = first; g < result_.groups.size(); ++g) {
        HETCCL_TRY(match_exchange(result_.groups[g], ranks));
      }
    }
    return {};
  }

  Status match_calls_of(const std::vector<int>& ranks, size_t local, size_t first) {
    const int rank = ranks[local];
    const Code& code = codes_[static_cast<size_t>(rank)];
    size_t group = first;
    for (const uint32_t i : find(rank, [](const Instruction& one) {
           return info_of(one.op).is(lower::OpcodeInfo::kCollective);
         })) {
      if (local == 0) result_.groups.push_back({ranks, {}});
      const Code& leader = codes_[static_cast<size_t>(ranks[0])];
      if (group == result_.groups.size() ||
          (local > 0 && !same_call(leader.list[result_.groups[group].members[0]], code.list[i]))) {
        return error(ErrorCode::InternalError, "%s meets no equal call of rank %d",
                     describe(code, rank, i).c_str(), ranks[0]);
      }
      result_.groups[group].members.push_back(i);
      result_.group_of[static_cast<size_t>(rank)][i] = static_cast<uint32_t>(group++);
    }
    if (group == result_.groups.size()) return {};
    return error(
        ErrorCode::InternalError, "%s: rank %d of the cluster does not take part",
        describe(codes_[static_cast<size_t>(ranks[0])], ranks[0], result_.groups[group].members[0])
            .c_str(),
        rank);
  }

  // Each member lists its own messages: its n-th send to another matches the other's n-th receive
  // from it.
  Status match_exchange(Matching::Group& group, const std::vector<int>& ranks) {
    using Ends = std::pair<uint32_t, uint32_t>;  // sender and receiver
    std::map<Ends, std::pair<std::vector<uint32_t>, std::vector<uint32_t>>> all;
    for (uint32_t local = 0; local < ranks.size(); ++local) {
      const auto& transfers = member_of(group, ranks, local).transfers;
      for (uint32_t i = 0; i < transfers.size(); ++i) {
        const auto peer = static_cast<uint32_t>(transfers[i].peer);
        transfers[i].send ? all[{local, peer}].first.push_back(i)
                          : all[{peer, local}].second.push_back(i);
      }
    }
    for (const auto& [ends, lists] : all) {
      const auto& [sent, received] = lists;
      for (size_t i = 0; i < std::max(sent.size(), received.size()); ++i) {
        const bool both = i < std::min(sent.size(), received.size());
        if (both && is_same_block(group, ranks, {ends.first, ends.second, sent[i], received[i]})) {
          group.exchanged.push_back({ends.first, ends.second, sent[i], received[i]});
          continue;
        }
        return error(ErrorCode::InternalError,
                     "unmatched: message %zu from rank %d to rank %d in %s", i, ranks[ends.first],
                     ranks[ends.second], describe_member(group, ranks, ends.first).c_str());
      }
    }
    return {};
  }

  [[nodiscard]] const Instruction& member_of(const Matching::Group& group,
                                             const std::vector<int>& ranks, uint32_t local) const {
    return codes_[static_cast<size_t>(ranks[local])].list[group.members[local]];
  }
  [[nodiscard]] std::string describe_member(const Matching::Group& group,
                                            const std::vector<int>& ranks, uint32_t local) const {
    return describe(codes_[static_cast<size_t>(ranks[local])], ranks[local], group.members[local]);
  }

  /// Whether both ends name the same part of the same block.
  [[nodiscard]] bool is_same_block(const Matching::Group& group, const std::vector<int>& ranks,
                                   const Matching::Exchanged& one) const {
    const plan::Region &sent = member_of(group, ranks, one.from).transfers[one.send].operand.region,
                       &received =
                           member_of(group, ranks, one.to).transfers[one.receive].operand.region;
    const int n = problem_.n_ranks();
    return same_part(sent, received) && unit_of(problem_.spec, n, ranks[one.from], sent) ==
                                            unit_of(problem_.spec, n, ranks[one.to], received);
  }

  const Problem& problem_;
  const Codes& codes_;
  Matching result_;
};

}  // namespace

Result<Matching> match(const Problem& problem, const Codes& codes) {
  return Matcher(problem, codes).run();
}

std::string describe(const Code& code, int rank, uint32_t index) {
  const Instruction& one = code.list[index];
  const std::string head = format("rank %d, step %u", rank, unsigned{one.step});
  if (info_of(one.op).is(lower::OpcodeInfo::kCollective)) {
    return head + format(" (vendor call at stage %d)", one.stage);
  }
  if (!info_of(one.op).is(lower::OpcodeInfo::kMessage))
    return head + format(" (%s)", info_of(one.op).name);
  const int peer = code.lanes[lower::lane_of(one.queue)].peer;
  const bool sends = lower::kind_of(one.queue) == QueueKind::Send;
  return head +
         format(sends ? " (send message %u to rank %d)" : " (receive message %u from rank %d)",
                code.messages[one.message].number, peer);
}

}  // namespace hetccl::verify
