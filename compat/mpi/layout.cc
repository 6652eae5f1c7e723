#include "mpi/layout.h"

#include <algorithm>

namespace hetccl::mpi {
namespace {

bool has_all_ranks(const Call& call, bool sends) {
  switch (call.collective) {
    case Collective::Alltoall:
    case Collective::Alltoallv:
      return true;
    case Collective::Scatter:
    case Collective::Scatterv:
      return sends;
    case Collective::Allgather:
    case Collective::Allgatherv:
    case Collective::Gather:
    case Collective::Gatherv:
      return !sends;
    default:
      return false;
  }
}

Block block(int64_t place, int64_t count, Word type, const Library& library) {
  return {place * library.extent(type), count,
          static_cast<size_t>(count * library.type(type).bytes)};
}

// The input of a sum that is scattered: all ranks' blocks, in the order of the ranks.
int64_t elements_of_sum(const Call& call, int n_ranks) {
  return call.collective == Collective::ReduceScatterBlock ? call.recv.count * n_ranks
                                                           : call.recv.counts.sum(n_ranks);
}

}  // namespace

std::vector<Block> blocks_of_all(const Call& call, const Side& side, int n_ranks,
                                 const Library& library) {
  if (!is_uneven(call.collective)) {
    return {block(0, side.count * n_ranks, side.type, library)};
  }
  std::vector<Block> list;
  list.reserve(static_cast<size_t>(n_ranks));
  for (int i = 0; i < n_ranks; ++i) {
    list.push_back(block(side.displs[i], side.counts[i], side.type, library));
  }
  return list;
}

Block own_block(const Side& side, const Library& library) {
  return block(0, side.count, side.type, library);
}

Span span_of(const Call& call, bool sends, int n_ranks, const Library& library) {
  const Side& side = sends ? call.send : call.recv;
  std::vector<Block> list;
  if (call.collective == Collective::ReduceScatter ||
      call.collective == Collective::ReduceScatterBlock) {
    // In place, the result's buffer holds the input.
    list = {block(0, elements_of_sum(call, n_ranks), side.type, library)};
    if (!sends && !call.send.in_place) list = {own_block(side, library)};
    if (!sends && !call.send.in_place && call.collective == Collective::ReduceScatter) {
      list = {block(0, call.recv.counts[library.rank(call.comm)], side.type, library)};
    }
  } else if (has_all_ranks(call, sends)) {
    list = blocks_of_all(call, side, n_ranks, library);
  } else {
    list = {own_block(side, library)};
  }
  const auto [low, high] = library.true_bounds(side.type);
  const int64_t step = library.extent(side.type);
  Span span;
  bool first = true;
  for (const Block& one : list) {
    if (one.count == 0) continue;
    const int64_t begin = one.offset + low, end = one.offset + (one.count - 1) * step + high;
    span = {first ? begin : std::min(span.begin, begin), first ? end : std::max(span.end, end)};
    first = false;
  }
  return span;
}

}  // namespace hetccl::mpi
