// Gather, scatter and all-to-all: every block has one sender and one receiver, so one message per
// block crosses the fewest bytes. Ranks begin with their neighbours, so that no two send to the
// same rank first.
#include "plan/planners.h"

namespace hetccl::plan {
namespace {

/// Whether `from` has a block for `to`.
bool moves(const Spec& spec, int from, int to) {
  if (spec.collective == Collective::Gather) return to == spec.root;
  if (spec.collective == Collective::Scatter) return from == spec.root;
  return true;
}

Region input_for(const Spec& spec, int to) {
  const bool one = spec.collective == Collective::Gather;
  return {Buffer::Input, one ? 0 : static_cast<uint32_t>(to)};
}

Region output_from(const Spec& spec, int from) {
  const bool one = spec.collective == Collective::Scatter;
  return {Buffer::Output, one ? 0 : static_cast<uint32_t>(from)};
}

/// Whether this rank's cluster moves its own blocks by its library. The answer is the same on all
/// its ranks, since all of them must make the call.
bool exchanges(const Builder& b) {
  const bool rooted = is_rooted(b.spec().collective);
  return b.mine().exchanges && (!rooted || b.cluster_of(b.spec().root) == b.cluster());
}

/// Most messages that a rank has in pinned memory at a time; 0 if transports reach the memory of
/// all devices.
uint32_t most_staged(const Builder& b) {
  if (b.topology().host_access_everywhere()) return 0;
  const auto others = static_cast<uint32_t>(b.n_ranks() - 1);
  return is_rooted(b.spec().collective) ? others : 2 * others;
}

}  // namespace

RankPlan plan_pairwise(Builder b) {
  const Spec spec = b.spec();
  const int n = b.n_ranks(), self = b.rank();
  const auto message = [n](int from, int to) { return static_cast<uint32_t>(from * n + to); };
  const bool inside = exchanges(b);
  Step exchange{.kind = StepKind::CclExchange, .whole = true};
  for (int distance = 0; distance < n; ++distance) {
    const int to = (self + distance) % n, from = (self + n - distance) % n;
    if (moves(spec, self, to)) {
      if (inside && b.cluster_of(to) == b.cluster())
        exchange.transfers.push_back({b.local_rank(to), true, input_for(spec, to)});
      else if (to != self)
        b.send(message(self, to), to, 0, input_for(spec, to), {});
    }
    if (moves(spec, from, self)) {
      if (inside && b.cluster_of(from) == b.cluster())
        exchange.transfers.push_back({b.local_rank(from), false, output_from(spec, from)});
      else if (from != self)
        b.recv(message(from, self), from, 0, output_from(spec, from), {});
    }
  }
  if (inside) {
    b.add(std::move(exchange));
  } else if (moves(spec, self, self)) {
    b.add(
        {.kind = StepKind::Copy, .srcs = {input_for(spec, self)}, .dst = output_from(spec, self)});
  }
  const uint32_t staged = b.n_clusters() > 1 || !inside ? most_staged(b) : 0;
  return staged == 0 ? std::move(b).finish_unsliced() : std::move(b).finish_fixed(staged);
}

}  // namespace hetccl::plan
