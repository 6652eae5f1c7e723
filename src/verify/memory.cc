#include "verify/memory.h"

#include <algorithm>

namespace hetccl::verify {

Cells::Cells(const Problem& problem, const Codes& codes) : problem_(problem) {
  for (int rank = 0; rank < problem.n_ranks(); ++rank) {
    for (const lower::Instruction& one : codes[static_cast<size_t>(rank)].list) {
      for_each_operand(one, [&](const lower::Operand& operand) { cut(rank, operand.region); });
    }
  }
  for (auto& cuts : cuts_) {
    std::sort(cuts.begin(), cuts.end());
    cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  }
}

void Cells::cut(int rank, const plan::Region& region) {
  const bool begins = region.begin.num != 0, ends = region.end.num != region.end.den;
  if (!begins && !ends) return;
  const uint64_t unit = unit_of(problem_.spec, problem_.n_ranks(), rank, region);
  if (cuts_.size() <= unit) cuts_.resize(unit + 1);
  auto& cuts = cuts_[unit];
  if (cuts.empty()) cuts = {{0, 1}, {1, 1}};
  if (begins) cuts.push_back(region.begin);
  if (ends) cuts.push_back(region.end);
}

const std::vector<plan::Fraction>& Cells::cuts(int rank, const plan::Region& region) const {
  static const std::vector<plan::Fraction> kWhole = {{0, 1}, {1, 1}};
  const uint64_t unit = unit_of(problem_.spec, problem_.n_ranks(), rank, region);
  return unit >= cuts_.size() || cuts_[unit].empty() ? kWhole : cuts_[unit];
}

Cells::Range Cells::range(int rank, const plan::Region& region) const {
  const auto& all = cuts(rank, region);
  const auto index = [&](plan::Fraction f) {
    if (f.num == 0) return uint32_t{0};
    if (f.num == f.den) return static_cast<uint32_t>(all.size() - 1);
    return static_cast<uint32_t>(std::lower_bound(all.begin(), all.end(), f) - all.begin());
  };
  const uint32_t block = static_cast<uint32_t>(all.size()) - 1;
  return {index(region.begin) + region.run * block,
          index(region.end) + (region.run + region.blocks - 1) * block};
}

uint32_t Cells::size(int rank, const plan::Region& region) const {
  return static_cast<uint32_t>(cuts(rank, region).size()) - 1;
}

uint32_t ModelMemory::add(uint32_t n_cells) {
  first_.push_back(static_cast<uint32_t>(cells_.size()));
  cells_.resize(cells_.size() + n_cells);
  values_.resize(cells_.size());
  return static_cast<uint32_t>(first_.size() - 1);
}

Cells::Range ModelMemory::whole(uint32_t place) const {
  const size_t end = place + 1 < first_.size() ? first_[place + 1] : cells_.size();
  return {0, static_cast<uint32_t>(end) - first_[place]};
}

const Use* ModelMemory::read(uint32_t place, Cells::Range range, const Clock& clock, Use use) {
  for (uint32_t i = first_[place] + range.begin; i < first_[place] + range.end; ++i) {
    Cell& cell = cells_[i];
    if (clock.of(cell.write.thread) < cell.write.count) return &cell.write;
    int32_t known = cell.reads;
    while (known >= 0 && reads_[static_cast<size_t>(known)].use.thread != use.thread) {
      known = reads_[static_cast<size_t>(known)].next;
    }
    if (known >= 0) {
      reads_[static_cast<size_t>(known)].use = use;
      continue;
    }
    reads_.push_back({use, cell.reads});
    cell.reads = static_cast<int32_t>(reads_.size() - 1);
  }
  return nullptr;
}

const Use* ModelMemory::write(uint32_t place, Cells::Range range, const Clock& clock, Use use) {
  for (uint32_t i = first_[place] + range.begin; i < first_[place] + range.end; ++i) {
    Cell& cell = cells_[i];
    const bool again = cell.write.thread == use.thread && cell.write.count == use.count;
    if (!again && clock.of(cell.write.thread) < cell.write.count) return &cell.write;
    for (int32_t r = cell.reads; r >= 0; r = reads_[static_cast<size_t>(r)].next) {
      const Use& read = reads_[static_cast<size_t>(r)].use;
      const bool own = read.thread == use.thread && read.count == use.count;
      if (!own && clock.of(read.thread) < read.count) return &read;
    }
    cell.write = use;
    cell.reads = -1;
  }
  return nullptr;
}

}  // namespace hetccl::verify
