// Computes where a call's data lies in the program's buffers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "mpi/call.h"
#include "mpi/library.h"

namespace hetccl::mpi {

/// Consecutive elements of one type.
struct Block {
  int64_t offset;  ///< of the first element in the buffer, in bytes
  int64_t count;   ///< elements
  size_t bytes;    ///< of data, without gaps
};

/// The `n_ranks` blocks of a side that has one block per rank; blocks of equal length are merged
/// into one.
std::vector<Block> blocks_of_all(const MpiCall& call, const Side& side, int n_ranks,
                                 const Library& library);
/// The only block of a side that holds just this rank's data.
Block own_block(const Side& side, const Library& library);

/// Extent of data in the program's memory, gaps included, from the first byte to the end of the
/// last.
struct Span {
  int64_t begin = 0, end = 0;
  [[nodiscard]] size_t bytes() const { return static_cast<size_t>(end - begin); }
};
Span span_of(const Block& block, Word type, const Library& library);
/// `sends`: the send side, else the receive side.
Span span_of(const MpiCall& call, bool sends, int n_ranks, const Library& library);

}  // namespace hetccl::mpi
