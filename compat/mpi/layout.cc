#include "mpi/layout.h"

#include <algorithm>

namespace hetccl::mpi {
namespace {

bool has_all_ranks(const MpiCall& call, bool sends) {
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

Block make_block(int64_t place, int64_t count, Word type, const Library& library) {
  return {place * library.extent(type), count,
          static_cast<size_t>(count * library.type(type).bytes)};
}

// Elements of a reduce-scatter's input: the blocks of all ranks, in rank order.
int64_t elements_of_sum(const MpiCall& call, int n_ranks) {
  return call.collective == Collective::ReduceScatterBlock ? call.recv.count * n_ranks
                                                           : call.recv.counts.sum(n_ranks);
}

}  // namespace

std::vector<Block> blocks_of_all(const MpiCall& call, const Side& side, int n_ranks,
                                 const Library& library) {
  if (!is_uneven(call.collective)) {
    return {make_block(0, side.count * n_ranks, side.type, library)};
  }
  std::vector<Block> list;
  list.reserve(static_cast<size_t>(n_ranks));
  for (int i = 0; i < n_ranks; ++i) {
    list.push_back(make_block(side.displs[i], side.counts[i], side.type, library));
  }
  return list;
}

Block own_block(const Side& side, const Library& library) {
  return make_block(0, side.count, side.type, library);
}

Span span_of(const Block& block, Word type, const Library& library) {
  if (block.count == 0) return {};
  const auto [low, high] = library.true_bounds(type);
  const int64_t last = (block.count - 1) * library.extent(type);  // extents may be negative
  return {block.offset + std::min<int64_t>(last, 0) + low,
          block.offset + std::max<int64_t>(last, 0) + high};
}

Span span_of(const MpiCall& call, bool sends, int n_ranks, const Library& library) {
  const Side& side = sends ? call.send : call.recv;
  std::vector<Block> list;
  if (call.collective == Collective::ReduceScatter ||
      call.collective == Collective::ReduceScatterBlock) {
    // In place, the result's buffer holds the input.
    list = {make_block(0, elements_of_sum(call, n_ranks), side.type, library)};
    if (!sends && !call.send.in_place) list = {own_block(side, library)};
    if (!sends && !call.send.in_place && call.collective == Collective::ReduceScatter) {
      list = {make_block(0, call.recv.counts[library.rank(call.comm)], side.type, library)};
    }
  } else if (has_all_ranks(call, sends)) {
    list = blocks_of_all(call, side, n_ranks, library);
  } else {
    list = {own_block(side, library)};
  }
  Span all;
  for (const Block& one : list) {
    const Span span = span_of(one, side.type, library);
    if (span.bytes() == 0) continue;
    all = all.bytes() == 0 ? span
                           : Span{std::min(all.begin, span.begin), std::max(all.end, span.end)};
  }
  return all;
}

}  // namespace hetccl::mpi
