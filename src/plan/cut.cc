#include "plan/cut.h"

#include <algorithm>
#include <numeric>

namespace hetccl::plan {
namespace {

Fraction reduced(uint64_t num, uint64_t den) {
  const uint64_t divisor = std::gcd(num, den);
  return {static_cast<uint32_t>(num / divisor), static_cast<uint32_t>(den / divisor)};
}

}  // namespace

bool overlap(const Piece& a, const Piece& b) {
  return a.block == b.block && a.begin < b.end && b.begin < a.end;
}

Cut cut_line(std::span<const uint32_t> blocks, std::span<const uint32_t> shares) {
  // Unit of positions along the line: 1/sum of a block.
  const uint64_t sum = std::accumulate(shares.begin(), shares.end(), uint64_t{0});
  Cut cut;
  uint64_t begin = 0, taken = 0;
  for (uint32_t holder = 0; holder < shares.size(); ++holder) {
    taken += shares[holder];
    const uint64_t end = taken * blocks.size();
    while (begin < end) {
      const uint64_t block = begin / sum, start = block * sum;
      const uint64_t stop = std::min(end, start + sum);
      cut.push_back({holder,
                     {blocks[static_cast<size_t>(block)], reduced(begin - start, sum),
                      reduced(stop - start, sum)}});
      begin = stop;
    }
  }
  return cut;
}

Cut cut_part(uint32_t part, uint32_t parts, std::span<const uint32_t> shares) {
  const uint64_t sum = std::accumulate(shares.begin(), shares.end(), uint64_t{0});
  const uint64_t den = sum * parts;
  Cut cut;
  uint64_t begin = sum * part;
  for (uint32_t holder = 0; holder < shares.size(); ++holder) {
    const uint64_t end = begin + shares[holder];
    cut.push_back({holder, {0, reduced(begin, den), reduced(end, den)}});
    begin = end;
  }
  return cut;
}

std::vector<Overlap> overlay(const Cut& a, const Cut& b) {
  std::vector<Overlap> overlaps;
  for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    // Both walks are in the same block, because cuts have no gaps and end at block boundaries.
    const Piece &x = a[i].piece, &y = b[j].piece;
    overlaps.push_back({i, j, {x.block, std::max(x.begin, y.begin), std::min(x.end, y.end)}});
    const bool a_ends = !(y.end < x.end), b_ends = !(x.end < y.end);
    i += a_ends ? 1 : 0;
    j += b_ends ? 1 : 0;
  }
  return overlaps;
}

}  // namespace hetccl::plan
