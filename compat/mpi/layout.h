// Where a call's data lies in the program's buffers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "mpi/call.h"
#include "mpi/library.h"

namespace hetccl::mpi {

/// Elements that lie one after the other, as the type has it.
struct Block {
  int64_t offset;  ///< of the first one in the buffer, in bytes
  int64_t count;   ///< elements
  size_t bytes;    ///< of data, without gaps
};

/// The `n_ranks` blocks of a side that has one for each rank; those of equal length are one.
std::vector<Block> blocks_of_all(const MpiCall& call, const Side& side, int n_ranks,
                                 const Library& library);
/// The one block of a side that has only this rank's.
Block own_block(const Side& side, const Library& library);

/// What data takes of the program's memory with the gaps in it, from the first byte to behind the
/// last.
struct Span {
  int64_t begin = 0, end = 0;
  [[nodiscard]] size_t bytes() const { return static_cast<size_t>(end - begin); }
};
Span span_of(const Block& block, Word type, const Library& library);
/// `sends`: the side is what the call sends.
Span span_of(const MpiCall& call, bool sends, int n_ranks, const Library& library);

}  // namespace hetccl::mpi
