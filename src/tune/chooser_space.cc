// Lists the settings that the online search may try instead of the chooser's.
#include <algorithm>

#include "base/divide.h"
#include "lower/geometry.h"
#include "plan/call.h"
#include "tune/chooser.h"
#include "tune/library_space.h"

namespace hetccl::tune {
namespace {

constexpr uint64_t kLeastSlice = uint64_t{8} << 10U;
constexpr uint64_t kMostCrossing = uint64_t{4} << 20U;     // per slice, to bound memory
constexpr uint64_t kLeastStreamed = uint64_t{512} << 10U;  // smaller messages are one piece, on one
                                                           // stream
constexpr uint64_t kLeastThreaded = uint64_t{256} << 10U;  // smaller sums are one thread's
constexpr uint64_t kLeastChannelled = uint64_t{64} << 10U;

void insert(std::vector<uint64_t>& values, uint64_t value) {
  const auto at = std::lower_bound(values.begin(), values.end(), value);
  if (at == values.end() || *at != value) values.insert(at, value);
}

uint64_t slice_of(uint64_t bytes, uint64_t n_slices) {
  return std::max<uint64_t>(64, divide_up(divide_up(bytes, n_slices), 64) * 64);
}

Axis slice_axis(uint64_t bytes, uint64_t most, uint64_t start) {
  Axis axis{Parameter::SliceBytes, {}};
  for (uint64_t n = 1; n <= lower::kMaxSlices; n = n < 4 ? n + 1 : n * 3 / 2) {
    const uint64_t slice = slice_of(bytes, n);
    if (slice > most) continue;
    if (slice < kLeastSlice && n > 1) break;
    insert(axis.values, slice);
  }
  insert(axis.values, start);
  return axis;
}

Axis depth_axis(uint64_t start) {
  Axis axis{Parameter::Depth, {2, 3, 4, 6, 8, 12, 16}};
  insert(axis.values, start);
  return axis;
}

Axis power_axis(Parameter parameter, uint64_t most, uint64_t start) {
  Axis axis{parameter, {}};
  for (uint64_t value = 1; value <= most; value *= 2) axis.values.push_back(value);
  insert(axis.values, start);
  return axis;
}

// Returns whether fewer channels inside clusters would leave GPU blocks to other work.
bool spends_channels(Collective collective, uint64_t bytes, const Limits& limits) {
  return !limits.tactics.empty() && !limits.keep_bits && !plan::is_pairwise(collective) &&
         bytes >= kLeastChannelled;
}

// Returns the same implementation with a fixed number of the library's channels.
Subspace with_channels(Subspace space, uint64_t bytes) {
  space.start.resources.tactic.channels = usual_channels(bytes);
  space.axes.push_back(channels_axis());
  return space;
}

}  // namespace

// Returns the largest slice of which a window holds several; otherwise its ends wait for each
// other.
uint64_t Chooser::most_slice(const Load& load) const {
  const double blocks = std::max(load.blocks, 1.0);
  uint64_t crossing = kMostCrossing;
  if (model_.window() > 0) crossing = std::min(crossing, most_in_window());
  return static_cast<uint64_t>(static_cast<double>(crossing) / blocks) / 64 * 64;
}

Subspace Chooser::subspace(const Option& option, uint64_t bytes, const Limits& limits) const {
  const Candidate start = candidate(option, bytes);
  Subspace space{{option.algorithm, start.choice, {}}, {}};
  plan::Choice& choice = space.start.choice;
  if (limits.slice_bytes > 0) choice.slice_bytes = limits.slice_bytes;
  if (limits.depth > 0) choice.depth = limits.depth;
  // The cut between slices decides which rank adds an element, and in which order.
  const bool cut = bytes >= 2 * kLeastSlice && !option.load.fixed_slices && !limits.keep_bits;
  if (cut && limits.slice_bytes == 0)
    space.axes.push_back(slice_axis(bytes, most_slice(option.load), choice.slice_bytes));
  // Hosts that read in place must have read a slice before the next one comes, so depth is fixed.
  if (bytes >= 2 * kLeastSlice && limits.depth == 0 && !model_.hosts_read_in_place())
    space.axes.push_back(depth_axis(choice.depth));
  if (!model_.in_memory() && limits.tcp_streams > 1 && bytes >= kLeastStreamed) {
    space.start.resources.tcp_streams = limits.tcp_streams;
    space.axes.push_back(power_axis(Parameter::TcpStreams, limits.tcp_streams, limits.tcp_streams));
  }
  if (option.load.adds && limits.gpu_blocks > 0 && bytes >= kLeastSlice) {
    space.start.resources.gpu_blocks = limits.gpu_blocks;
    space.axes.push_back(power_axis(Parameter::GpuBlocks, 64, limits.gpu_blocks));
  }
  if (option.load.adds && limits.host_threads > 1 && bytes >= kLeastThreaded) {
    space.start.resources.host_threads = limits.host_threads;
    const uint64_t all = limits.host_threads;
    space.axes.push_back(power_axis(Parameter::HostThreads, all, all));
  }
  std::erase_if(space.axes, [](const Axis& axis) { return axis.values.size() < 2; });
  return space;
}

Space Chooser::space(const plan::Spec& spec, uint64_t count, DataType type, const Limits& limits) {
  const uint64_t bytes = multiply_saturated(count, size_of(type));
  if (model_.n_clusters() < 2) {
    const bool blocks =
        spec.collective == Collective::AllGather || spec.collective == Collective::ReduceScatter;
    const uint64_t all = multiply_saturated(bytes, blocks ? topology_.n_ranks() : 1);
    return library_space(spec.collective, all, limits.tactics, limits.keep_bits);
  }
  const Candidate best = choose(spec, count, type);
  Limits mine = limits;
  mine.keep_bits = limits.keep_bits && reduces(spec.collective);
  Space space;
  for (const Option& option : find_options(spec)) {
    const bool first = option.algorithm == best.algorithm;
    if (mine.keep_bits && !first) continue;
    Subspace one = subspace(option, bytes, mine);
    space.insert(first ? space.begin() : space.end(), std::move(one));
  }
  if (!space.empty() && spends_channels(spec.collective, bytes, mine))
    space.push_back(with_channels(space.front(), bytes));
  return space;
}

}  // namespace hetccl::tune
