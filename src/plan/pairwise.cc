// Every block has one sender and one receiver, so the fewest bytes are one message for each. Ranks
// start with their neighbours, so that no two send to the same rank first.
#include "plan/planners.h"

namespace hetccl::plan {
namespace {

/// Has `from` a block for `to`?
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

}  // namespace

RankPlan plan_pairwise(Builder b) {
  const Spec spec = b.spec();
  const int n = b.n_ranks(), self = b.rank();
  const auto message = [n](int from, int to) { return static_cast<uint32_t>(from * n + to); };
  if (moves(spec, self, self)) {
    b.add(
        {.kind = StepKind::Copy, .srcs = {input_for(spec, self)}, .dst = output_from(spec, self)});
  }
  for (int distance = 1; distance < n; ++distance) {
    const int to = (self + distance) % n, from = (self + n - distance) % n;
    if (moves(spec, self, to)) b.send(message(self, to), to, 0, input_for(spec, to), {});
    if (moves(spec, from, self)) b.recv(message(from, self), from, 0, output_from(spec, from), {});
  }
  return std::move(b).finish_unsliced();
}

}  // namespace hetccl::plan
