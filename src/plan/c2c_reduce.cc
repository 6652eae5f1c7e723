#include "plan/c2c_reduce.h"

#include <algorithm>
#include <numeric>

namespace hetccl::plan {
namespace {

std::vector<C2cReduce::Entry> entries_of(const Builder& b, int cluster, const Cut& cut) {
  std::vector<C2cReduce::Entry> entries;
  for (const Held& held : cut) entries.push_back({b.holder(cluster, held), held.piece});
  return entries;
}

}  // namespace

C2cReduce::C2cReduce(Builder& b, int cluster, std::vector<Entry> entries, int n_arrivals)
    : b_(b), cluster_(cluster), entries_(std::move(entries)), n_arrivals_(n_arrivals) {}

C2cReduce::C2cReduce(Builder& b, int cluster, const Cut& cut, int n_arrivals)
    : C2cReduce(b, cluster, entries_of(b, cluster, cut), n_arrivals) {}

bool C2cReduce::by_vendor() const {
  const topology::Cluster& cluster = b_.cluster(cluster_);
  return !cluster.kernels && cluster.ranks.size() > 1 && !b_.encodes();
}

std::vector<int> C2cReduce::others(size_t at) const {
  const topology::Cluster& cluster = b_.cluster(cluster_);
  std::vector<int> places = cluster.border;
  if (places.size() < 2) {
    places.resize(cluster.ranks.size());
    std::iota(places.begin(), places.end(), 0);
  }
  std::erase(places, b_.local_rank(entries_[at].holder));
  return places;
}

int C2cReduce::landing(size_t at, int nth) const {
  if (!by_vendor()) return entries_[at].holder;
  const std::vector<int> places = others(at);
  const int place = places[(at + static_cast<size_t>(nth)) % places.size()];
  return b_.cluster(cluster_).ranks[static_cast<size_t>(place)];
}

void C2cReduce::receive(uint32_t message, int from, uint16_t stage, const Piece& piece, size_t at,
                        int nth) {
  const auto [entry, is_new] = arrivals_.try_emplace({at, nth});
  Arrival& arrival = entry->second;
  if (is_new) arrival.box = b_.scratch_for_message(entries_[at].piece);
  arrival.ready.push_back(b_.recv(message, from, stage, part_of(arrival.box, piece), {}));
}

std::vector<C2cReduce::Sum> C2cReduce::add(uint16_t stage, size_t own_at, std::vector<Own> own,
                                           bool average) {
  if (by_vendor()) return add_by_vendor(stage, std::move(own), average);
  return add_by_kernels(stage, own_at, std::move(own), average);
}

std::vector<C2cReduce::Sum> C2cReduce::add_by_kernels(uint16_t stage, size_t own_at,
                                                      std::vector<Own> own, bool average) {
  std::vector<Sum> sums(entries_.size());
  for (size_t at = 0; at < entries_.size(); ++at) {
    if (entries_[at].holder != b_.rank()) continue;
    std::vector<Region> srcs;
    Deps deps = std::move(own[at].ready);
    for (int nth = 0; nth < n_arrivals_; ++nth) {
      const Arrival& arrival = arrivals_.at({at, nth});
      srcs.push_back(arrival.box);
      append(deps, arrival.ready);
    }
    const Region spare = srcs.front();
    srcs.insert(srcs.begin() + static_cast<std::ptrdiff_t>(own_at), own[at].part);
    const Region dst = own[at].result.value_or(spare);
    sums[at] = {dst, {b_.reduce(stage, dst, std::move(srcs), std::move(deps), spare, average)}};
  }
  return sums;
}

std::vector<C2cReduce::Sum> C2cReduce::add_by_vendor(uint16_t stage, std::vector<Own> own,
                                                     bool average) {
  int n_rounds = 0;
  for (size_t at = 0; at < entries_.size(); ++at) {
    const int a_round = static_cast<int>(others(at).size());
    n_rounds = std::max(n_rounds, (n_arrivals_ + a_round - 1) / a_round);
    if (entries_[at].holder == b_.rank() && !own[at].result) {
      own[at].result = b_.scratch(entries_[at].piece);
    }
  }
  for (int round = 0; round < n_rounds; ++round) add_round(stage, round, own);
  std::vector<Sum> sums(entries_.size());
  for (size_t at = 0; at < entries_.size(); ++at) {
    if (entries_[at].holder != b_.rank()) continue;
    sums[at] = {own[at].part, std::move(own[at].ready)};
    if (!average) continue;
    const Region sum = sums[at].region;
    sums[at].ready = {b_.reduce(stage, sum, {sum}, std::move(sums[at].ready), sum, true)};
  }
  return sums;
}

void C2cReduce::add_round(uint16_t stage, int round, std::vector<Own>& own) {
  Step step{.kind = StepKind::CclReduce, .stage = stage, .apart = true};
  std::vector<size_t> held;
  for (size_t at = 0; at < entries_.size(); ++at) {
    const int a_round = static_cast<int>(others(at).size()), first = round * a_round;
    if (first >= n_arrivals_) continue;
    const Entry& entry = entries_[at];
    const Region nothing = region_of(Buffer::Identity, entry.piece);
    ShardRegion shard{b_.local_rank(entry.holder), nothing, nothing};
    if (entry.holder == b_.rank()) {
      shard.send = own[at].part;
      shard.recv = *own[at].result;
      append(step.deps, own[at].ready);
      held.push_back(at);
    }
    for (int nth = first; nth < std::min(first + a_round, n_arrivals_); ++nth) {
      const auto arrival = arrivals_.find({at, nth});
      if (arrival == arrivals_.end()) continue;
      shard.send = arrival->second.box;
      append(step.deps, arrival->second.ready);
    }
    step.shards.push_back(shard);
  }
  const uint16_t done = b_.add(std::move(step));
  for (const size_t at : held) {
    own[at].part = *own[at].result;
    own[at].ready = {done};
  }
}

}  // namespace hetccl::plan
