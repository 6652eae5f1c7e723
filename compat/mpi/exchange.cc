#include "mpi/exchange.h"

#include <algorithm>
#include <cstring>

#include "mpi/host_copy.h"

namespace hetccl::mpi {
namespace {

constexpr int64_t kPieceBytes = int64_t{1} << 30;

Function pack("PMPI_Pack"), unpack("PMPI_Unpack");

// The same block, at offset 0: for a buffer that holds nothing else.
Block at_begin(Block block) {
  block.offset = 0;
  return block;
}

bool is_bitwise(hetcclRedOp_t op) {
  return op == hetcclBand || op == hetcclBor || op == hetcclBxor;
}

bool applies(TypeKind kind, hetcclRedOp_t op) {
  const bool bitwise = is_bitwise(op);
  switch (kind) {
    case TypeKind::Integer:
      return true;
    case TypeKind::Float:
      return !bitwise;
    case TypeKind::Complex:
      return op == hetcclSum;
    case TypeKind::Bits:
      return bitwise;
  }
  return false;
}

}  // namespace

Volume volume_of(const MpiCall& call, int n_ranks, int rank, const Library& library) {
  const auto of = [&](int64_t count, Word type) {
    const int64_t bytes = count * library.type(type).bytes;
    return Volume{bytes, bytes * n_ranks, reduces(call.collective) ? count : -1};
  };
  const auto of_all = [&](int64_t count, Word type) {
    const int64_t bytes = count * library.type(type).bytes;
    return Volume{bytes / n_ranks, bytes, reduces(call.collective) ? count : -1};
  };
  switch (call.collective) {
    case Collective::Allreduce:
    case Collective::Reduce:
    case Collective::Bcast:
      return of(call.send.count, call.send.type);
    case Collective::Allgather:
    case Collective::ReduceScatterBlock:
    case Collective::Alltoall:
      return of(call.recv.count, call.recv.type);
    case Collective::Allgatherv:
    case Collective::ReduceScatter:
      return of_all(call.recv.counts.sum(n_ranks), call.recv.type);
    case Collective::Gather:
      return rank == call.root ? of(call.recv.count, call.recv.type)
                               : of(call.send.count, call.send.type);
    case Collective::Scatter:
      return rank == call.root ? of(call.send.count, call.send.type)
                               : of(call.recv.count, call.recv.type);
    case Collective::Barrier:
      return {0, 0, 0};
    case Collective::Alltoallv:
    case Collective::Gatherv:
    case Collective::Scatterv:
      break;
  }
  return {};
}

std::optional<Reduction> reduction_of(const MpiCall& call, const Library& library) {
  const TypeMeaning* type = library.type(call.recv.type).meaning;
  const OpMeaning* op = library.op(call.op);
  if (type == nullptr || op == nullptr || !applies(type->kind, op->op)) return std::nullopt;
  return Reduction{type->type, op->op, type->elements};
}

bool reduces_on_devices(const Reduction& reduction) {
  return !is_bitwise(reduction.op) && reduction.type != hetcclInt16 &&
         reduction.type != hetcclUint16;
}

bool is_contiguous(const MpiCall& call, int rank, const Library& library) {
  const Sides sides = significant_sides(call, rank);
  return (!sides.send || library.is_contiguous(call.send.type)) &&
         (!sides.recv || library.is_contiguous(call.recv.type));
}

MemorySpace memory_of(const MpiCall& call, int rank) {
  const Sides sides = significant_sides(call, rank);
  MemorySpace memory;
  if (sides.recv) memory = memory_of(to_pointer<const void>(call.recv.buffer));
  if (sides.send && memory.on_host()) {
    memory = memory_of(to_pointer<const void>(call.send.buffer));
  }
  return memory;
}

Result<std::unique_ptr<Exchange>> Exchange::prepare(const MpiCall& call, int n_ranks, int rank,
                                                    MemorySpace place, const Library& library) {
  std::unique_ptr<Exchange> exchange(new Exchange(call, n_ranks, rank, place, library));
  HETCCL_TRY(exchange->prepare());
  return exchange;
}

// Address of this rank's own block in the buffer `all`, which holds the blocks of all ranks.
std::byte* Exchange::own_block(const Side& side, std::byte* all, const Lengths& lengths) {
  const auto me = static_cast<size_t>(rank_);
  if (is_uneven(call_.collective)) {
    count_ = lengths.counts[me];
    return all + lengths.displs[me];
  }
  count_ = static_cast<size_t>(side.count * library_.type(side.type).bytes);
  return all + me * count_;
}

Result<std::byte*> Exchange::take(size_t bytes) {
  HETCCL_ASSIGN(Scratch memory, Scratch::take(place_, std::max<size_t>(bytes, 1)));
  scratch_.push_back(std::move(memory));
  return scratch_.back().data();
}

// The MPI packs data with gaps, in host memory.
Status Exchange::move_in(const std::byte* from, std::byte* to, const Block& block, Word type,
                         MemorySpace memory) const {
  if (block.bytes == 0) return {};
  if (library_.is_contiguous(type)) return copy_memory(to, place_, from, memory, block.bytes);
  HETCCL_ASSIGN(const Scratch packed, Scratch::take({}, block.bytes));
  if (memory.is_usable_on({})) {
    HETCCL_TRY(pack_block(from_pointer(from), packed.data(), block, type));
  } else {
    HETCCL_ASSIGN(
        const HostCopy copy,
        HostCopy::make(from_pointer(from), span_of(at_begin(block), type, library_), true));
    HETCCL_TRY(pack_block(copy.buffer(), packed.data(), block, type));
  }
  return copy_memory(to, place_, packed.data(), {}, block.bytes);
}

Status Exchange::move_out(const Move& move) const {
  const Block& block = move.block;
  if (block.bytes == 0) return {};
  if (!move.has_gaps) {
    return copy_memory(move.to, move.memory, move.from, place_, block.bytes);
  }
  HETCCL_ASSIGN(const Scratch packed, Scratch::take({}, block.bytes));
  HETCCL_TRY(copy_memory(packed.data(), {}, move.from, place_, block.bytes));
  if (move.memory.is_usable_on({})) {
    return unpack_block(packed.data(), from_pointer(move.to), block, move.type);
  }
  // The copy starts with the program's bytes, so that copying back leaves the bytes in the gaps
  // unchanged.
  HETCCL_ASSIGN(
      const HostCopy copy,
      HostCopy::make(from_pointer(move.to), span_of(at_begin(block), move.type, library_), true));
  HETCCL_TRY(unpack_block(packed.data(), copy.buffer(), block, move.type));
  return copy.copy_back();
}

// MPI_Pack counts bytes in an int, so long data is moved in pieces.
template <typename F>
Status Exchange::for_each_piece(const Block& block, Word type, const F& move) const {
  const int64_t extent = library_.extent(type);
  const auto element = static_cast<int64_t>(block.bytes) / block.count;
  const int64_t most = std::max<int64_t>(kPieceBytes / element, 1);
  for (int64_t done = 0; done < block.count; done += most) {
    const int64_t count = std::min(most, block.count - done);
    HETCCL_TRY(move(static_cast<Word>(done * extent), done * element, count, count * element));
  }
  return {};
}

Status Exchange::pack_block(Word from, std::byte* packed, const Block& block, Word type) const {
  return for_each_piece(
      block, type, [&](Word place, int64_t packed_place, int64_t count, int64_t bytes) -> Status {
        int position = 0;
        const Words words(from + place, from_int(count), type, from_pointer(packed + packed_place),
                          from_int(bytes), from_pointer(&position), library_.comm_self);
        return pack.call(words) == 0 ? Status() : error(ErrorCode::SystemError, "MPI_Pack failed");
      });
}

Status Exchange::unpack_block(const std::byte* packed, Word to, const Block& block,
                              Word type) const {
  return for_each_piece(
      block, type, [&](Word place, int64_t packed_place, int64_t count, int64_t bytes) -> Status {
        int position = 0;
        const Words words(from_pointer(packed + packed_place), from_int(bytes),
                          from_pointer(&position), to + place, from_int(count), type,
                          library_.comm_self);
        return unpack.call(words) == 0 ? Status()
                                       : error(ErrorCode::SystemError, "MPI_Unpack failed");
      });
}

Status Exchange::use(const Side& side, const std::vector<Block>& list, unsigned ways,
                     std::byte** at, Lengths* lengths, bool always_scratch) {
  auto* const base = to_pointer<std::byte>(side.buffer);
  const MemorySpace memory = mpi::memory_of(base);
  const bool forward =
      std::all_of(list.begin(), list.end(), [](const Block& b) { return b.offset >= 0; });
  const bool has_gaps = !library_.is_contiguous(side.type);
  const bool direct = !always_scratch && forward && memory.is_usable_on(place_) && !has_gaps;
  if (place_.on_host() || has_gaps) {
    HETCCL_TRY(settle(memory));
  }
  size_t total = 0;
  for (const Block& block : list) {
    if (lengths != nullptr) {
      lengths->counts.push_back(block.bytes);
      lengths->displs.push_back(direct ? static_cast<size_t>(block.offset) : total);
    }
    total += block.bytes;
  }
  if (direct) {
    *at = base;
    return {};
  }
  HETCCL_ASSIGN(*at, take(total));
  Word type = side.type;
  if ((ways & kOut) != 0 && has_gaps && call_.form == Form::Nonblocking) {
    type = types_.emplace_back(type, library_).get();
  }
  std::byte* here = *at;
  for (const Block& block : list) {
    if ((ways & kIn) != 0) {
      HETCCL_TRY(move_in(base + block.offset, here, block, side.type, memory));
    }
    if ((ways & kOut) != 0) {
      moves_.push_back({here, base + block.offset, block, type, memory, has_gaps});
    }
    here += block.bytes;
  }
  return {};
}

// Whether blocks of one side lie between those of the other. hetccl would take that for an overlap.
bool Exchange::interleaves() const {
  if (!is_uneven(call_.collective)) return false;
  const Span sent = span_of(call_, true, n_ranks_, library_);
  const Span received = span_of(call_, false, n_ranks_, library_);
  const auto begin = [](Word buffer, const Span& span) {
    return static_cast<int64_t>(buffer) + span.begin;
  };
  const int64_t a = begin(call_.send.buffer, sent), b = begin(call_.recv.buffer, received);
  return a < b + static_cast<int64_t>(received.bytes()) &&
         b < a + static_cast<int64_t>(sent.bytes());
}

Status Exchange::prepare_all_to_one() {
  const bool uneven = call_.collective == Collective::Gatherv;
  if (is_root()) {
    const unsigned ways = call_.send.in_place ? kIn | kOut : kOut;
    HETCCL_TRY(use(call_.recv, blocks(call_.recv, false), ways, &recv_,
                   uneven ? &recv_lengths_ : nullptr));
  }
  if (call_.send.in_place) {
    send_ = own_block(call_.recv, recv_, recv_lengths_);
    return {};
  }
  const auto own = blocks(call_.send, true);
  count_ = own.front().bytes;
  return use(call_.send, own, kIn, &send_, nullptr, is_root() && interleaves());
}

Status Exchange::prepare_one_to_all() {
  const bool uneven = call_.collective == Collective::Scatterv;
  if (is_root()) {
    HETCCL_TRY(
        use(call_.send, blocks(call_.send, false), kIn, &send_, uneven ? &send_lengths_ : nullptr));
  }
  if (call_.recv.in_place) {
    recv_ = own_block(call_.send, send_, send_lengths_);
    return {};
  }
  const auto own = blocks(call_.recv, true);
  count_ = own.front().bytes;
  return use(call_.recv, own, kOut, &recv_, nullptr, is_root() && interleaves());
}

Status Exchange::prepare_all_to_all() {
  const Collective collective = call_.collective;
  const bool uneven = is_uneven(collective);
  const bool gathers = collective == Collective::Allgather || collective == Collective::Allgatherv;
  const unsigned ways = call_.send.in_place ? kIn | kOut : kOut;
  HETCCL_TRY(
      use(call_.recv, blocks(call_.recv, false), ways, &recv_, uneven ? &recv_lengths_ : nullptr));
  if (call_.send.in_place) {
    if (!gathers) return error(ErrorCode::Unsupported, "an all-to-all in place");
    send_ = own_block(call_.recv, recv_, recv_lengths_);
    return {};
  }
  count_ = static_cast<size_t>(call_.send.count * library_.type(call_.send.type).bytes);
  return use(call_.send, blocks(call_.send, gathers), kIn, &send_,
             uneven && !gathers ? &send_lengths_ : nullptr, interleaves());
}

// In place, MPI reads all of recvbuf and writes the result to its beginning. hetccl would leave the
// result in the rank's own block.
Status Exchange::prepare_scattered_sum() {
  const bool uneven = call_.collective == Collective::ReduceScatter;
  const int64_t own = uneven ? call_.recv.counts[rank_] : call_.recv.count;
  const int64_t all = uneven ? call_.recv.counts.sum(n_ranks_) : own * n_ranks_;
  const int64_t size = library_.type(call_.recv.type).bytes;
  const Side& input = call_.send.in_place ? call_.recv : call_.send;
  HETCCL_TRY(use(input, {{0, all, static_cast<size_t>(all * size)}}, kIn, &send_, nullptr));
  HETCCL_TRY(use(call_.recv, {{0, own, static_cast<size_t>(own * size)}}, kOut, &recv_, nullptr,
                 call_.send.in_place && rank_ != 0));
  const auto elements = static_cast<size_t>(reduction_->elements);
  count_ = static_cast<size_t>(own) * elements;
  if (!uneven) return {};
  for (int i = 0; i < n_ranks_; ++i) {
    send_lengths_.counts.push_back(static_cast<size_t>(call_.recv.counts[i]) * elements);
  }
  return {};
}

Status Exchange::prepare() {
  if (reduces(call_.collective)) {
    reduction_ = reduction_of(call_, library_);
    if (!reduction_) return error(ErrorCode::Unsupported, "such a type or operator");
  }
  switch (call_.collective) {
    case Collective::Barrier:
      return {};
    case Collective::Gather:
    case Collective::Gatherv:
      return prepare_all_to_one();
    case Collective::Scatter:
    case Collective::Scatterv:
      return prepare_one_to_all();
    case Collective::Allgather:
    case Collective::Allgatherv:
    case Collective::Alltoall:
    case Collective::Alltoallv:
      return prepare_all_to_all();
    case Collective::ReduceScatter:
    case Collective::ReduceScatterBlock:
      return prepare_scattered_sum();
    case Collective::Bcast: {
      const auto whole = blocks(call_.send, true);
      HETCCL_TRY(use(call_.send, whole, is_root() ? kIn : kOut, &recv_, nullptr));
      send_ = recv_;
      count_ = whole.front().bytes;
      return {};
    }
    case Collective::Allreduce:
    case Collective::Reduce:
      break;
  }
  const auto whole = blocks(call_.recv, true);
  count_ = static_cast<size_t>(call_.recv.count) * static_cast<size_t>(reduction_->elements);
  const bool receives = call_.collective == Collective::Allreduce || is_root();
  if (receives) {
    const unsigned ways = call_.send.in_place ? kIn | kOut : kOut;
    HETCCL_TRY(use(call_.recv, whole, ways, &recv_, nullptr));
  }
  if (!call_.send.in_place) return use(call_.send, whole, kIn, &send_, nullptr);
  send_ = recv_;
  return {};
}

hetcclResult_t Exchange::launch(hetcclComm_t comm, hetcclStream_t stream, size_t part,
                                size_t parts) const {
  const auto bytes = hetcclUint8;
  const auto* from = send_lengths_.counts.data();
  const auto* to = recv_lengths_.counts.data();
  const auto* from_at = send_lengths_.displs.data();
  const auto* to_at = recv_lengths_.displs.data();
  const int root = call_.root;
  switch (call_.collective) {
    case Collective::Allreduce: {
      const size_t first = count_ * part / parts, last = count_ * (part + 1) / parts;
      const size_t size = static_cast<size_t>(library_.type(call_.recv.type).bytes) /
                          static_cast<size_t>(reduction_->elements);
      return hetcclAllReduce(send_ + first * size, recv_ + first * size, last - first,
                             reduction_->type, reduction_->op, comm, stream);
    }
    case Collective::Reduce:
      return hetcclReduce(send_, recv_, count_, reduction_->type, reduction_->op, root, comm,
                          stream);
    case Collective::Bcast:
      return hetcclBroadcast(send_, recv_, count_, bytes, root, comm, stream);
    case Collective::Allgather:
      return hetcclAllGather(send_, recv_, count_, bytes, comm, stream);
    case Collective::Allgatherv:
      return hetcclAllGatherV(send_, recv_, to, to_at, bytes, comm, stream);
    case Collective::ReduceScatter:
      return hetcclReduceScatterV(send_, from, nullptr, recv_, reduction_->type, reduction_->op,
                                  comm, stream);
    case Collective::ReduceScatterBlock:
      return hetcclReduceScatter(send_, recv_, count_, reduction_->type, reduction_->op, comm,
                                 stream);
    case Collective::Alltoall:
      return hetcclAllToAll(send_, recv_, count_, bytes, comm, stream);
    case Collective::Alltoallv:
      return hetcclAllToAllV(send_, from, from_at, recv_, to, to_at, bytes, comm, stream);
    case Collective::Gather:
      return hetcclGather(send_, recv_, count_, bytes, root, comm, stream);
    case Collective::Gatherv:
      return hetcclGatherV(send_, count_, recv_, to, to_at, bytes, root, comm, stream);
    case Collective::Scatter:
      return hetcclScatter(send_, recv_, count_, bytes, root, comm, stream);
    case Collective::Scatterv:
      return hetcclScatterV(send_, from, from_at, recv_, count_, bytes, root, comm, stream);
    case Collective::Barrier:
      return hetcclBarrier(comm, stream);
  }
  return hetcclInternalError;
}

Status Exchange::deliver() {
  for (const Move& move : moves_) HETCCL_TRY(move_out(move));
  return {};
}

}  // namespace hetccl::mpi
