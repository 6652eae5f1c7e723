#include "lower/geometry.h"

#include <algorithm>

#include "lower/ring.h"
#include "plan/schedule.h"

namespace hetccl::lower {
namespace {

using plan::Buffer;
using plan::Region;
using plan::Step;
using plan::StepKind;

// Several calls of the driver take as long as a device copies that.
constexpr size_t kMostBytesOfOneStream = size_t{256} << 10U;

uint64_t round_up(uint64_t value, uint64_t grain) {
  return (value + grain - 1) / grain * grain;
}

// Elements of one slice: the choice's, but no longer than the message, and so many that there are
// at most kMaxSlices.
uint64_t slice_length(const CallShape& call) {
  const uint64_t grain = plan::grain_of(call.type);
  const uint64_t least = round_up((call.count + kMaxSlices - 1) / kMaxSlices, grain);
  const uint64_t wanted =
      round_up(std::max<uint64_t>(call.choice.slice_bytes / size_of(call.type), 1), grain);
  return std::min(std::max(wanted, least), round_up(std::max<uint64_t>(call.count, 1), grain));
}

bool is_message(const Step& step) {
  return step.kind == StepKind::Send || step.kind == StepKind::Recv;
}

size_t bytes_in_first_slice(const Region& region, const CallShape& call, uint64_t slice) {
  const Layout& layout = region.buffer == Buffer::Output ? call.output : call.input;
  const uint32_t block = region.buffer == Buffer::Scratch ? region.of : region.block;
  const uint64_t count = layout.counts.empty() ? call.count : layout.counts[block];
  const uint64_t length = std::min(slice, count), grain = plan::grain_of(call.type);
  return (plan::element(region.end, length, grain) - plan::element(region.begin, length, grain)) *
         size_of(call.type);
}

struct Load {
  size_t sent = 0, received = 0;  // what a slice's messages take in a ring
};

// All messages of a slice that go one way between two ranks fit into half of the ring, or none
// goes through it: so none waits for credit until a later one, or one of its own slice, has been
// read. Calls that are uneven and not sliced differ too much for Code to be kept for each: none of
// their messages goes through rings.
void route(Geometry& geometry, const Target& target, const std::vector<Load>& loads, bool sliced) {
  for (size_t i = 0; i < target.lanes.size(); ++i) {
    const size_t ring = target.lanes[i].ring_bytes;
    Geometry::Lane& lane = geometry.lanes[i];
    if (ring == 0) continue;
    lane.send_in_ring = Ring::fits(loads[i].sent, ring);
    lane.recv_in_ring = Ring::fits(loads[i].received, ring);
    if (!lane.recv_in_ring || geometry.short_call || !sliced) continue;
    // More than the pipeline's depth makes no difference.
    const size_t unread = Ring::slices_unread(loads[i].received, ring);
    lane.unread = static_cast<uint32_t>(std::min<size_t>(unread, geometry.depth));
  }
}

}  // namespace

size_t Target::lane_of(int peer) const {
  const auto lane = std::lower_bound(lanes.begin(), lanes.end(), peer,
                                     [](const Reach& one, int rank) { return one.peer < rank; });
  return static_cast<size_t>(lane - lanes.begin());
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

bool is_direct(const plan::RankPlan& plan) {
  if (plan.steps.size() != 1 || plan.sliced) return false;
  const StepKind kind = plan.steps[0].kind;
  return !is_message(plan.steps[0]) && kind != StepKind::Reduce && kind != StepKind::Copy;
}

Geometry geometry_of(const plan::RankPlan& plan, const Target& target, const CallShape& call) {
  Geometry geometry;
  geometry.depth = call.choice.depth;
  geometry.slice_elements = plan.sliced ? slice_length(call) : std::max<uint64_t>(call.count, 1);
  geometry.n_slices = static_cast<uint32_t>(std::max<uint64_t>(
      1, call.count / geometry.slice_elements + (call.count % geometry.slice_elements != 0)));
  geometry.n_slots = plan::slots(plan, geometry.depth, geometry.n_slices);
  geometry.lanes.resize(target.lanes.size());
  // What is one step anyway has nothing to overlap.
  geometry.short_call = plan.steps.size() <= 1 && target.lanes.empty() && geometry.n_slices == 1;
  if (geometry.short_call) return geometry;

  std::vector<Load> loads(target.lanes.size());
  size_t moved = 0;
  // A piece of a shorter slice may be a grain longer, since fractions are rounded down to grains.
  const size_t gained = geometry.n_slices > 1 ? plan::grain_of(call.type) * size_of(call.type) : 0;
  for (const Step& step : plan.steps) {
    const bool send = step.kind == StepKind::Send;
    // `lower` refuses a send without a source.
    if (!is_message(step) || (send && step.srcs.empty())) continue;
    const size_t bytes =
        bytes_in_first_slice(send ? step.srcs[0] : step.dst, call, geometry.slice_elements);
    Load& load = loads[target.lane_of(step.peer)];
    (send ? load.sent : load.received) += Ring::room(bytes + gained);
    moved += bytes;
  }
  const size_t slice_bytes = geometry.slice_elements * size_of(call.type);
  geometry.short_call =
      geometry.n_slices == 1 && std::max(slice_bytes, moved / 2) <= kMostBytesOfOneStream;
  const bool even = call.input.counts.empty() && call.output.counts.empty();
  if (plan.sliced || even) route(geometry, target, loads, plan.sliced);
  return geometry;
}

}  // namespace hetccl::lower
