#include "tune/chooser.h"

#include <algorithm>
#include <cmath>

#include "base/divide.h"
#include "lower/geometry.h"

namespace hetccl::tune {
namespace {

using plan::Spec;

constexpr uint64_t kMinSlice = uint64_t{64} << 10U;    // below this, a slice's fixed cost shows
constexpr uint64_t kMaxCrossing = uint64_t{4} << 20U;  // per slice: fits into caches
// For all ranks' slices in one cluster together. Scratch memory is a few times this.
constexpr uint64_t kMaxEncoded = uint64_t{64} << 20U;
constexpr uint64_t kMinEncoded = uint64_t{1} << 20U;
constexpr uint64_t kShmCrossing = uint64_t{1} << 20U;  // no wire: only the cache counts
constexpr uint64_t kShmAdding = uint64_t{256} << 10U;  // if hosts add: fits into a core's own cache
constexpr int kDeepest = 16;                           // scratch holds this many slices
constexpr double kSliceSeconds = 2e-3;                 // time of a slice on the slowest link
// The host's cost of enqueueing a slice on devices' streams; over TCP it includes waking the
// threads that move it. A pipeline of `kStages` stages (out and in, twice) waits for its first and
// last.
constexpr double kEnqueueSeconds = 30e-6;
constexpr double kTcpEnqueueSeconds = 120e-6;
constexpr double kStages = 4;
constexpr uint64_t kOfWindow = 5;      // a message fits if it is at most a quarter of the window
                                       // without its head
constexpr uint64_t kOfHostWindow = 7;  // and at most a sixth, to leave room for the next slice

}  // namespace

const std::vector<Chooser::Option>& Chooser::find_options(const Spec& spec) {
  // Averages and factors change neither messages nor sums, and every root of a cluster crosses
  // links alike. Drop them from the key, to keep the map small.
  Spec key{.collective = spec.collective, .uneven = spec.uneven, .encoding = spec.encoding};
  if (is_rooted(spec.collective)) {
    const auto cluster = static_cast<size_t>(topology_.cluster_of(spec.root));
    key.root = topology_.clusters()[cluster].ranks.front();
  }
  const auto [entry, is_new] = options_.try_emplace(key);
  if (!is_new) return entry->second;
  for (const plan::Algorithm* row : plan::find_algorithms(key, topology_, table_))
    entry->second.push_back({row->id, model_.load(*row, key, topology_)});
  return entry->second;
}

uint64_t Chooser::slices(const Load& load, uint64_t bytes) const {
  if (model_.n_clusters() < 2) {
    if (!load.encodes) return 1;
    const auto ranks = static_cast<uint64_t>(topology_.n_ranks());
    return std::max<uint64_t>(1, divide_up(bytes, std::max(kMinEncoded, kMaxEncoded / ranks)));
  }
  const auto in_time = static_cast<uint64_t>(model_.slowest().bandwidth * kSliceSeconds);
  const auto blocks = static_cast<uint64_t>(std::ceil(std::max(load.blocks, 1.0)));
  const auto of = [&](uint64_t crossing) {
    return divide_up(bytes, std::max(kMinSlice, crossing / blocks));
  };
  const uint64_t in_caches = load.adds && !model_.on_streams() ? kShmAdding : kShmCrossing;
  uint64_t n = of(model_.in_memory() ? in_caches : std::min(kMaxCrossing, in_time));
  // More slices fill the pipeline faster but cost more. Take the number with the least total.
  const auto best = [&](double slice_seconds) {
    const double wire = load.seconds_per_byte * static_cast<double>(bytes);
    return static_cast<uint64_t>(std::sqrt(kStages * wire / slice_seconds));
  };
  if (model_.window() > 0) {
    n = std::max(of(std::min(kMaxCrossing, most_in_window())), best(kEnqueueSeconds));
  } else if (model_.on_streams() && !model_.in_memory()) {
    n = std::max(n, best(kTcpEnqueueSeconds));
  }
  return std::clamp<uint64_t>(n, 1, lower::kMaxSlices);
}

uint64_t Chooser::most_in_window() const {
  return model_.window() / (model_.hosts_read_in_place() ? kOfHostWindow : kOfWindow);
}

uint64_t Chooser::fixed_slice() const {
  if (model_.window() == 0 || !model_.in_memory()) return lower::kFixedSlice;
  return std::min(kMaxCrossing, model_.window() / kOfWindow / 64 * 64);
}

Candidate Chooser::candidate(const Option& option, uint64_t bytes) const {
  const Load& load = option.load;
  const uint64_t n_slices = load.fixed_slices
                                ? std::max<uint64_t>(1, divide_up(bytes, fixed_slice()))
                                : slices(load, bytes);
  // Slices are of one size, the last included; a multiple of 64 bytes holds whole elements.
  const uint64_t slice = divide_up(bytes, n_slices);
  Candidate candidate;
  candidate.algorithm = option.algorithm;
  candidate.hops = load.hops;
  candidate.choice.slice_bytes =
      load.fixed_slices ? fixed_slice()
                        : std::max<uint64_t>(64, multiply_saturated(divide_up(slice, 64), 64));
  // As many slices in flight as there are hops, plus some that are reduced or copied meanwhile.
  // Hosts that read a slice in place must have read it before the next one comes.
  const int meanwhile = model_.hosts_read_in_place() ? 1 : 2;
  candidate.choice.depth = static_cast<uint32_t>(std::clamp(load.hops + meanwhile, 3, kDeepest));
  candidate.seconds = model_.seconds(load, bytes, n_slices);
  return candidate;
}

Candidate Chooser::choose(const Spec& spec, uint64_t count, DataType type) {
  const uint64_t bytes = multiply_saturated(count, size_of(type));
  Candidate best;
  for (const Option& option : find_options(spec)) {
    const Candidate one = candidate(option, bytes);
    if (best.algorithm.empty() || one.seconds < best.seconds) best = one;
  }
  return best;
}

std::vector<Candidate> Chooser::candidates(const Spec& spec, uint64_t count, DataType type) {
  const uint64_t bytes = multiply_saturated(count, size_of(type));
  std::vector<Candidate> all;
  for (const Option& option : find_options(spec)) all.push_back(candidate(option, bytes));
  return all;
}

}  // namespace hetccl::tune
