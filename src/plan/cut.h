// Cuts lines of blocks over border ranks. A *line* is an ordered list of blocks, each one slice
// long; a cluster's shares cut it into one interval per border rank. The overlaps of two clusters'
// cuts are the messages between them, each within one block.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/plan.h"

namespace hetccl::plan {

/// A part of one block.
struct Piece {
  uint32_t block = 0;
  Fraction begin{0, 1}, end{1, 1};
};

/// Whether both pieces contain a common element.
[[nodiscard]] bool overlap(const Piece& a, const Piece& b);

/// A piece and its holder, an index into Cluster::border.
struct Held {
  uint32_t holder = 0;
  Piece piece;
};

/// A line of one block.
inline constexpr uint32_t kWholeLine[] = {0};

/// The pieces of a line, in order and without gaps.
using Cut = std::vector<Held>;

/// Cuts the line of `blocks` in proportion to `shares`.
[[nodiscard]] Cut cut_line(std::span<const uint32_t> blocks, std::span<const uint32_t> shares);

/// Cuts part number `part` of `parts` equal parts of block 0: one piece per share.
[[nodiscard]] Cut cut_part(uint32_t part, uint32_t parts, std::span<const uint32_t> shares);

/// A piece in entry `a_index` of cut `a` and in entry `b_index` of cut `b`.
struct Overlap {
  size_t a_index = 0, b_index = 0;
  Piece piece;
};

/// The overlaps of two cuts of the same line, in the line's order.
[[nodiscard]] std::vector<Overlap> overlay(const Cut& a, const Cut& b);

}  // namespace hetccl::plan
