// The verifier's model of a rank's memory: cells that hold expressions, and their last uses.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "verify/clock.h"
#include "verify/expression.h"
#include "verify/problem.h"

namespace hetccl::verify {

/// A use of memory. An instruction that knows `count` completions of `thread` knows that it is
/// over.
struct Use {
  ThreadId thread = 0;
  uint32_t count = 0;
  uint32_t index = 0;  ///< the instruction, or kCaller
  uint32_t call = 0;   ///< number among the calls in flight
};
/// Stands for the caller, which uses its buffers before and after the call.
inline constexpr uint32_t kCaller = UINT32_MAX;

/// Content of a cell: an expression over the inputs of one slice of one call.
struct Value {
  NodeId node = Expressions::kUndefined;
  uint32_t slice = 0;  ///< numbered over all calls
  bool operator==(const Value&) const = default;
};

/// The cells of slices. Cells are separated by every fraction at which a region begins or ends.
class Cells {
 public:
  Cells(const Problem& problem, const Codes& codes);
  struct Range {
    uint32_t begin = 0, end = 0;
  };
  /// In a run, counted from the first block's first cell.
  [[nodiscard]] Range range(int rank, const plan::Region& region) const;
  /// Number of cells in the whole slice of the block that `region` is a part of.
  [[nodiscard]] uint32_t size(int rank, const plan::Region& region) const;

 private:
  void cut(int rank, const plan::Region& region);
  [[nodiscard]] const std::vector<plan::Fraction>& cuts(int rank, const plan::Region& region) const;
  const Problem& problem_;
  std::vector<std::vector<plan::Fraction>> cuts_;  // by unit, up to the last one that is cut
};

class ModelMemory {
 public:
  /// Adds a place of `n_cells`; returns its number.
  uint32_t add(uint32_t n_cells);
  [[nodiscard]] Cells::Range whole(uint32_t place) const;

  /// Records a use of cells [begin, end) of `place` by an instruction that knows `clock`. Returns
  /// null, or an earlier use that is not ordered with it.
  const Use* read(uint32_t place, Cells::Range range, const Clock& clock, Use use);
  const Use* write(uint32_t place, Cells::Range range, const Clock& clock, Use use);
  [[nodiscard]] std::span<Value> values(uint32_t place, Cells::Range range) {
    return {&values_[first_[place] + range.begin], range.end - range.begin};
  }

 private:
  struct Read {
    Use use;
    int32_t next = -1;
  };
  struct Cell {
    Use write;
    int32_t reads = -1;  ///< index of the first read since the last write
  };
  std::vector<uint32_t> first_;  // by place
  std::vector<Value> values_;
  std::vector<Cell> cells_;
  std::vector<Read> reads_;
};

}  // namespace hetccl::verify
