#include "lower/geometry.h"

#include <algorithm>

#include "base/divide.h"
#include "lower/ring.h"
#include "plan/schedule.h"

namespace hetccl::lower {
namespace {

using plan::Buffer;
using plan::Region;
using plan::Slicing;
using plan::Step;
using plan::StepKind;

// Copying this many bytes takes a device as long as several driver calls.
constexpr size_t kMostBytesOfOneStream = size_t{256} << 10U;
// The first touch of each page of a new buffer costs the host, and with many calls in flight each
// has a buffer of its own.
constexpr size_t kMostBriefBytes = size_t{16} << 10U;
constexpr size_t kMostOwnBytesOfHost = size_t{64} << 10U;

// Elements of a slice: as chosen, but no longer than the message, and long enough for at most
// kMaxSlices slices.
uint64_t slice_length(const plan::RankPlan& plan, const CallShape& call) {
  const uint64_t grain = plan::grain_of(call.type, plan.encoding);
  const uint64_t least = round_up(divide_up(call.count, kMaxSlices), grain);
  const uint64_t wanted =
      round_up(std::max<uint64_t>(call.choice.slice_bytes / size_of(call.type), 1), grain);
  return std::min(std::max(wanted, least), round_up(std::max<uint64_t>(call.count, 1), grain));
}

// Depends only on values that ranks share, since a rank does not know the others' blocks.
uint64_t fixed_slice_length(const plan::RankPlan& plan, const CallShape& call) {
  const plan::Choice& choice = call.choice;
  const uint64_t places = std::max<uint64_t>(plan.most_messages, 1) * (uint64_t{choice.depth} + 1);
  const uint64_t bytes = std::min(std::max(kMostStagingBytes / places, kLeastFixedSlice),
                                  std::max<uint64_t>(choice.slice_bytes, 1));
  return round_up(std::max<uint64_t>(bytes / size_of(call.type), 1), plan::grain_of(call.type));
}

bool is_message(const Step& step) {
  return step.kind == StepKind::Send || step.kind == StepKind::Recv;
}

uint64_t length_of_block(const Region& region, const CallShape& call) {
  const Layout& layout = region.buffer == Buffer::Output ? call.output : call.input;
  const uint32_t block = region.buffer == Buffer::Scratch ? region.of : region.block;
  return layout.counts.empty() ? call.count : layout.counts[block];
}

size_t bytes_of_part(const plan::RankPlan& plan, const Region& region, uint64_t length,
                     const CallShape& call) {
  const uint64_t grain = plan::grain_of(call.type, plan.encoding);
  return plan::bytes_of(region, plan::part_of(region, length, length, 0, grain), call.type,
                        plan.encoding);
}

// Bytes that a call of one slice moves: the longest block, or half of all messages if that is more.
size_t bytes_of_slice(const plan::RankPlan& plan, const CallShape& call, const Geometry& geometry) {
  size_t moved = 0;
  for (const Step& step : plan.steps) {
    const Region* region = carried_by(step);
    if (region == nullptr) continue;
    const uint64_t length = std::min(geometry.slice_elements, length_of_block(*region, call));
    moved += bytes_of_part(plan, *region, length, call);
  }
  return std::max<size_t>(geometry.slice_elements * size_of(call.type), moved / 2);
}

struct Load {
  size_t sent = 0, received = 0;  // room in a ring for a slice's messages
};

// Decides for each lane and direction whether the messages go through the ring: all messages of a
// slice fit into half of it, or none uses it. So no message waits for credit until a later one, or
// one of its own slice, has been read.
void route(Geometry& geometry, const Target& target, const std::vector<Load>& loads, bool reads) {
  for (size_t i = 0; i < target.lanes.size(); ++i) {
    const size_t ring = target.lanes[i].ring_bytes;
    Geometry::RingUse& use = geometry.lanes[i];
    if (ring == 0) continue;
    use.send_in_ring = Ring::fits(loads[i].sent, ring);
    use.recv_in_ring = Ring::fits(loads[i].received, ring);
    if (!use.recv_in_ring || geometry.short_call || !reads) continue;
    // A limit above the pipeline's depth has no effect.
    const size_t unread = Ring::slices_unread(loads[i].received, ring);
    use.unread = static_cast<uint32_t>(std::min<size_t>(unread, geometry.depth));
  }
}

// Room that a slice's messages need in rings; the same at both ends. For an uneven call with fixed
// slices it is an upper bound, so that one Code serves all patterns of counts.
std::vector<Load> loads_of(const plan::RankPlan& plan, const Target& target, const CallShape& call,
                           const Geometry& geometry, uint64_t slice) {
  std::vector<Load> loads(target.lanes.size());
  // In a shorter slice a piece may be longer by one grain, because fractions are rounded down to
  // grains.
  const bool shorter = plan.slicing == Slicing::Agreed && geometry.n_slices > 1;
  const size_t gained = shorter ? plan::grain_of(call.type, plan.encoding) * size_of(call.type) : 0;
  const bool at_most = plan.slicing == Slicing::Fixed && call.is_uneven();
  for (const Step& step : plan.steps) {
    const Region* region = carried_by(step);
    if (region == nullptr) continue;
    const bool send = step.kind == StepKind::Send;
    const uint64_t length = at_most ? slice : std::min(slice, length_of_block(*region, call));
    Load& load = loads[target.lane_of(step.peer)];
    (send ? load.sent : load.received) +=
        Ring::room(bytes_of_part(plan, *region, length, call) + gained);
  }
  return loads;
}

}  // namespace

const Region* carried_by(const Step& step) {
  if (step.kind == StepKind::Recv) return &step.dst;
  return step.kind == StepKind::Send && !step.srcs.empty() ? &step.srcs[0] : nullptr;
}

std::vector<int> peers_of(const plan::RankPlan& plan) {
  std::vector<int> peers;
  for (const Step& step : plan.steps) {
    if (is_message(step)) peers.push_back(step.peer);
  }
  std::sort(peers.begin(), peers.end());
  peers.erase(std::unique(peers.begin(), peers.end()), peers.end());
  return peers;
}

bool is_one_library_call(const plan::RankPlan& plan) {
  if (plan.steps.size() != 1 || plan.slicing != Slicing::None) return false;
  const StepKind kind = plan.steps[0].kind;
  return !is_message(plan.steps[0]) && kind != StepKind::Reduce && kind != StepKind::Copy;
}

Geometry geometry_of(const plan::RankPlan& plan, const Target& target, const CallShape& call) {
  const uint64_t whole = std::max<uint64_t>(call.count, 1);
  const uint64_t grain = plan::grain_of(call.type, plan.encoding);
  const uint64_t slice = plan.slicing == Slicing::Agreed  ? slice_length(plan, call)
                         : plan.slicing == Slicing::Fixed ? fixed_slice_length(plan, call)
                                                          : whole;
  Geometry geometry;
  geometry.depth = call.choice.depth;
  geometry.by_host = call.by_host;
  geometry.registered =
      call.registered && std::any_of(target.lanes.begin(), target.lanes.end(),
                                     [](const Reach& lane) { return lane.registered; });
  geometry.slice_elements = std::min(slice, std::max(round_up(whole, grain), whole));
  geometry.n_slices = static_cast<uint32_t>(std::max<uint64_t>(1, divide_up(call.count, slice)));
  geometry.n_slots = plan::slots(plan, geometry.depth, geometry.n_slices);
  geometry.lanes.resize(target.lanes.size());
  // A single step has nothing to overlap.
  geometry.short_call = plan.steps.size() <= 1 && target.lanes.empty() && geometry.n_slices == 1;
  geometry.own_buffers = geometry.short_call;
  if (geometry.short_call) return geometry;
  const size_t bytes = bytes_of_slice(plan, call, geometry);
  geometry.short_call = geometry.n_slices == 1 && bytes <= kMostBytesOfOneStream;
  geometry.brief = geometry.short_call && bytes <= kMostBriefBytes;
  geometry.own_buffers =
      geometry.short_call && (!target.host_memory || bytes <= kMostOwnBytesOfHost);
  if (plan.slicing == Slicing::None && call.is_uneven()) return geometry;  // Code for each pattern
  route(geometry, target, loads_of(plan, target, call, geometry, slice),
        plan.slicing == Slicing::Agreed);
  return geometry;
}

}  // namespace hetccl::lower
