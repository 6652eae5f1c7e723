#include "plan/builder.h"

#include <algorithm>
#include <map>
#include <queue>
#include <tuple>

#include "plan/call.h"

namespace hetccl::plan {
namespace {

// Priority among the steps that are ready: a send first, since other ranks wait for it; a receive
// last.
int urgency(StepKind kind) {
  if (kind == StepKind::Send) return 0;
  return kind == StepKind::Recv ? 2 : 1;
}

// The order in which to start the steps one after the other, as on a shared queue. Calls of the
// cluster's library and messages of one channel stay in their order, since other ranks match them.
std::vector<uint16_t> starting_order(const std::vector<Step>& steps) {
  using Key = std::tuple<uint16_t, int, uint16_t>;  // smallest first
  const auto key = [&](uint16_t s) { return Key(steps[s].stage, urgency(steps[s].kind), s); };
  std::vector<uint16_t> by_stage(steps.size());
  for (uint16_t s = 0; s < steps.size(); ++s) by_stage[s] = s;
  std::stable_sort(by_stage.begin(), by_stage.end(),
                   [&](uint16_t a, uint16_t b) { return steps[a].stage < steps[b].stage; });
  std::vector<std::vector<uint16_t>> after(steps.size());
  std::vector<size_t> waits(steps.size());
  const auto add = [&](uint16_t first, uint16_t second) {
    after[first].push_back(second);
    ++waits[second];
  };
  std::map<std::pair<int, int>, uint16_t> last;  // by channel and direction, or the device
  for (const uint16_t s : by_stage) {
    for (const uint16_t dep : steps[s].deps) add(dep, s);
    const auto [before, is_first] = last.try_emplace({steps[s].peer, urgency(steps[s].kind)}, s);
    if (!is_first) add(std::exchange(before->second, s), s);
  }
  std::priority_queue<Key, std::vector<Key>, std::greater<>> ready;
  for (const uint16_t s : by_stage) {
    if (waits[s] == 0) ready.push(key(s));
  }
  std::vector<uint16_t> order;
  while (!ready.empty()) {
    const uint16_t s = std::get<2>(ready.top());
    ready.pop();
    order.push_back(s);
    for (const uint16_t next : after[s]) {
      if (--waits[next] == 0) ready.push(key(next));
    }
  }
  return order;
}

std::vector<Step> arranged(std::vector<Step> steps) {
  const std::vector<uint16_t> order = starting_order(steps);
  std::vector<uint16_t> place(steps.size());
  for (uint16_t i = 0; i < order.size(); ++i) place[order[i]] = i;
  std::vector<Step> result;
  result.reserve(steps.size());
  for (const uint16_t s : order) {
    for (uint16_t& dep : steps[s].deps) dep = place[dep];
    result.push_back(std::move(steps[s]));
  }
  return result;
}

}  // namespace

void append(Deps& deps, const Deps& more) {
  deps.insert(deps.end(), more.begin(), more.end());
}

Region region_of(Buffer buffer, const Piece& piece) {
  return {buffer, piece.block, piece.begin, piece.end};
}

Region part_of(const Region& whole, const Piece& piece) {
  Region part = whole;
  part.begin = piece.begin;
  part.end = piece.end;
  return part;
}

Region block_in_run(const Region& run, uint32_t index) {
  Region block = run;
  block.block += index;
  block.run += index;
  block.blocks = 1;
  return block;
}

Builder::Builder(int rank, const Spec& spec, const topology::Topology& topology, Crossing* crossing)
    : spec_(spec),
      topology_(topology),
      rank_(rank),
      cluster_(topology.cluster_of(rank)),
      crossing_(crossing) {
  const auto n_ranks = static_cast<uint32_t>(topology.n_ranks());
  plan_.input_blocks = send_blocks(spec.collective, n_ranks);
  plan_.output_blocks = recv_blocks(spec.collective, n_ranks);
  plan_.encoding = spec.encoding;
  plan_.scales_averages = spec.average && spec.scale;
}

int Builder::holder(int c, const Held& held) const {
  const topology::Cluster& cluster = this->cluster(c);
  return cluster.ranks[static_cast<size_t>(cluster.border[held.holder])];
}

std::vector<int> Builder::chain() const {
  std::vector<int> chain = {cluster_of(spec_.root)};
  for (int c = 0; c < n_clusters(); ++c) {
    if (c != chain.front()) chain.push_back(c);
  }
  return chain;
}

std::vector<uint32_t> Builder::line_of(int c) const {
  const std::vector<int>& ranks = cluster(c).ranks;
  return {ranks.begin(), ranks.end()};
}

uint16_t Builder::add(Step step) {
  plan_.steps.push_back(std::move(step));
  return static_cast<uint16_t>(plan_.steps.size() - 1);
}

Region Builder::scratch(const Piece& piece, bool encoded) {
  const auto is_free = [&](const ScratchBlock& block) {
    return block.encoded == encoded &&
           std::none_of(block.used.begin(), block.used.end(), [&](const Piece& other) {
             return other.block != piece.block ||
                    (other.begin < piece.end && piece.begin < other.end);
           });
  };
  const auto block = std::find_if(scratch_blocks_.begin(), scratch_blocks_.end(), is_free);
  const auto index = static_cast<uint32_t>(block - scratch_blocks_.begin());
  if (block == scratch_blocks_.end()) scratch_blocks_.push_back({.encoded = encoded});
  scratch_blocks_[index].used.push_back(piece);
  return {.buffer = Buffer::Scratch,
          .block = index,
          .begin = piece.begin,
          .end = piece.end,
          .of = piece.block,
          .encoded = encoded};
}

Region Builder::scratch_run(uint32_t blocks, uint32_t of) {
  const auto first = static_cast<uint32_t>(scratch_blocks_.size());
  scratch_blocks_.resize(first + blocks, {.used = {Piece{of}}});
  return {.buffer = Buffer::Scratch, .block = first, .of = of, .blocks = blocks};
}

uint32_t Builder::next_message(int from, int to, uint16_t stage, const Piece& piece) {
  if (crossing_ != nullptr) crossing_->add(from, to, stage, length_of(piece.begin, piece.end));
  return n_messages_++;
}

uint32_t Builder::next_gathered_message(int from, int to, uint16_t stage, uint32_t blocks) {
  if (crossing_ != nullptr) {
    crossing_->add(from, to, stage, blocks);
    if (blocks > 1) {
      for (const int rank : {from, to})
        crossing_->ranks[static_cast<size_t>(rank)].passed += blocks;
    }
  }
  return n_messages_++;
}

uint16_t Builder::send(uint32_t message, int to, uint16_t stage, const Region& src, Deps deps) {
  return add({.kind = StepKind::Send,
              .stage = stage,
              .deps = std::move(deps),
              .srcs = {src},
              .peer = to,
              .message = message});
}

uint16_t Builder::recv(uint32_t message, int from, uint16_t stage, const Region& dst, Deps deps) {
  return add({.kind = StepKind::Recv,
              .stage = stage,
              .deps = std::move(deps),
              .dst = dst,
              .peer = from,
              .message = message});
}

uint16_t Builder::convert(uint16_t stage, const Region& dst, const Region& src, Deps deps) {
  return add({.kind = StepKind::Reduce,
              .stage = stage,
              .deps = std::move(deps),
              .srcs = {src},
              .dst = dst});
}

void Builder::encode(const Cut& cut, size_t first, size_t last, const Deps& ready,
                     Partial& partial) {
  for (size_t at = first; at < last; ++at) {
    if (!holds(cut[at])) continue;
    const Region copy = scratch(cut[at].piece, true);
    partial.ready.push_back(convert(0, copy, partial.regions[at], ready));
    partial.regions[at] = copy;
  }
}

Region Builder::carried(const Piece& piece) const {
  return carried_.empty() ? region_of(Buffer::Output, piece)
                          : part_of(carried_[piece.block], piece);
}

void Builder::carry_encoded() {
  for (uint32_t block = 0; block < plan_.output_blocks; ++block) {
    carried_.push_back(scratch(Piece{}, true));
  }
}

void Builder::decode_carried(uint16_t stage) {
  for (uint32_t block = 0; block < carried_.size(); ++block) {
    const Region& from = carried_[block];
    convert(stage, {Buffer::Output, block}, from, writers_of(from.block));
  }
}

Deps Builder::writers_of(uint32_t scratch_block) const {
  const auto is_there = [&](const Region& region) {
    return region.buffer == Buffer::Scratch && region.block == scratch_block;
  };
  const int local = local_rank(rank_);
  Deps writers;
  for (size_t i = 0; i < plan_.steps.size(); ++i) {
    const Step& step = plan_.steps[i];
    bool writes =
        (step.kind == StepKind::Recv || step.kind == StepKind::Reduce) && is_there(step.dst);
    for (const ShardRegion& shard : step.shards) {
      writes |= writes_recv(step.kind, shard, local) && is_there(shard.recv);
    }
    if (writes) writers.push_back(static_cast<uint16_t>(i));
  }
  return writers;
}

Partial Builder::reduce_inside(const Cut& cut) {
  Partial partial;
  Step step{.kind = StepKind::CclReduce};
  for (const Held& held : cut) {
    const Region input = region_of(Buffer::Input, held.piece);
    const Region result = !input_is_partial() && holds(held) ? scratch(held.piece) : input;
    partial.regions.push_back(result);
    step.shards.push_back({mine().border[held.holder], input, result});
  }
  if (!alone())
    partial.ready = {reduce_input(std::move(step))};
  else if (spec_.scale)
    partial.ready = scale_pieces(step.shards);
  return partial;
}

Partial Builder::reduce_inside_everywhere() {
  const Region input{Buffer::Input};
  const Region sum = input_is_partial() ? input : scratch({});
  if (alone()) return {{sum}, spec_.scale ? scale_pieces({{.send = input, .recv = sum}}) : Deps{}};
  Step step{.kind = StepKind::CclAllReduce, .srcs = {input}, .dst = sum};
  step.scale = spec_.scale && !spec_.scale_apart;
  if (spec_.scale_apart) {
    step.srcs = {scratch({})};
    step.deps = scale_pieces({{.send = input, .recv = step.srcs[0]}});
  }
  return {{sum}, {add(std::move(step))}};
}

uint16_t Builder::reduce_input(Step step) {
  step.scale = spec_.scale && !spec_.scale_apart;
  if (!spec_.scale_apart) return add(std::move(step));
  std::vector<ShardRegion> pieces;
  for (ShardRegion& shard : step.shards) {
    const Region input = shard.send;
    shard.send = scratch({input.block, input.begin, input.end});
    pieces.push_back({.send = input, .recv = shard.send});
  }
  append(step.deps, scale_pieces(pieces));
  step.apart = true;
  return add(std::move(step));
}

Deps Builder::scale_pieces(const std::vector<ShardRegion>& pieces) {
  const auto continues = [](const Region& a, const Region& b) {
    return a.buffer == b.buffer && a.block == b.block && a.end == b.begin;
  };
  Deps last;
  for (size_t i = 0; i < pieces.size(); ++i) {
    Step step{
        .kind = StepKind::Reduce, .srcs = {pieces[i].send}, .dst = pieces[i].recv, .scale = true};
    for (; i + 1 < pieces.size() && continues(step.srcs[0], pieces[i + 1].send) &&
           continues(step.dst, pieces[i + 1].recv);
         ++i) {
      step.srcs[0].end = step.dst.end = pieces[i + 1].send.end;
    }
    last = {add(std::move(step))};
  }
  return last;
}

void Builder::broadcast_inside(const Cut& cut, uint16_t stage, Deps deps) {
  if (alone() || cut.empty()) return;
  Step step{.kind = StepKind::CclBroadcast, .stage = stage, .deps = std::move(deps)};
  for (const Held& held : cut) {
    const Region place = carried(held.piece);
    step.shards.push_back({mine().border[held.holder], place, place});
  }
  add(std::move(step));
}

uint16_t Builder::reduce(uint16_t stage, const Region& dst, std::vector<Region> srcs, Deps deps,
                         Region spare, bool average) {
  // Encoding would round the intermediate sum, so it goes to scratch that is not encoded.
  if (srcs.size() > kMaxReduceSources && spare.encoded) {
    spare = scratch({spare.of, spare.begin, spare.end});
  }
  // The sum accumulates in `spare`, because `dst` may be a later source if the call is in place.
  while (srcs.size() > kMaxReduceSources) {
    const auto rest = srcs.begin() + kMaxReduceSources;
    deps.push_back(add({.kind = StepKind::Reduce,
                        .stage = stage,
                        .deps = deps,
                        .srcs = {srcs.begin(), rest},
                        .dst = spare}));
    srcs.erase(srcs.begin() + 1, rest);
    srcs.front() = spare;
  }
  return add({.kind = StepKind::Reduce,
              .stage = stage,
              .deps = std::move(deps),
              .srcs = std::move(srcs),
              .dst = dst,
              .average = average});
}

RankPlan Builder::finish_unsliced() && {
  plan_.slicing = Slicing::None;
  return std::move(*this).finish(1);
}

RankPlan Builder::finish_fixed(uint32_t most_messages) && {
  plan_.slicing = Slicing::Fixed;
  plan_.most_messages = most_messages;
  return std::move(*this).finish(1);
}

RankPlan Builder::finish(int stages) && {
  plan_.stages = static_cast<uint16_t>(stages);
  plan_.scratch_blocks = static_cast<uint32_t>(scratch_blocks_.size());
  // The caller refuses plans with more steps.
  if (plan_.steps.size() <= UINT16_MAX) plan_.steps = arranged(std::move(plan_.steps));
  return std::move(plan_);
}

}  // namespace hetccl::plan
