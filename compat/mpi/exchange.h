// Translates a call of MPI to a call of hetccl: the same data, in memory that the rank's endpoint
// can use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <vector>

#include "base/status.h"
#include "hetccl/hetccl.h"
#include "mpi/call.h"
#include "mpi/layout.h"
#include "mpi/memory.h"

namespace hetccl::mpi {

/// The lengths of a call, in bytes, as far as all ranks know them: decisions that all ranks must
/// share depend only on these.
struct Volume {
  int64_t average = -1;  ///< of a block (MPICH's avg_msg_size); -1: no rank knows all lengths
  int64_t total = -1;    ///< of all blocks
  int64_t count = -1;    ///< elements, in reductions; moved data may have other types elsewhere
};
Volume volume_of(const MpiCall& call, int n_ranks, int rank, const Library& library);

/// Type and operator of a reduction, in hetccl's terms.
struct Reduction {
  hetcclDataType_t type;
  hetcclRedOp_t op;
  int elements;  ///< of `type`, per element of the MPI's type
};
/// Whether every vendor's library supports it: NCCL and RCCL lack bitwise operators and 16-bit
/// integers.
bool reduces_on_devices(const Reduction& reduction);
/// Returns nothing if hetccl does not compute exactly as MPI defines it.
std::optional<Reduction> reduction_of(const MpiCall& call, const Library& library);

/// Whether this rank's types have no gaps; other ranks may pass other types.
bool is_contiguous(const MpiCall& call, int rank, const Library& library);
/// The memory space of this rank's buffers: a GPU if at least one buffer is there.
MemorySpace memory_of(const MpiCall& call, int rank);

/// A call that is ready to be made. Must live until the call is complete.
class Exchange {
 public:
  /// Copies data that `place` cannot use, or that has gaps, into scratch memory. The copy may wait
  /// for a GPU.
  static Result<std::unique_ptr<Exchange>> prepare(const MpiCall& call, int n_ranks, int rank,
                                                   MemorySpace place, const Library& library);

  /// Calls hetccl. An all-reduce may be split into `parts`.
  hetcclResult_t launch(hetcclComm_t comm, hetcclStream_t stream, size_t part = 0,
                        size_t parts = 1) const;
  /// Copies results from scratch memory to the program's buffers. May wait for a GPU.
  Status deliver();

 private:
  // A copy of results, due when the call is complete.
  struct Move {
    std::byte* from;
    std::byte* to;
    Block block;
    Word type;
    MemorySpace memory;
    bool has_gaps;
  };
  struct Lengths {
    std::vector<size_t> counts, displs;
  };
  enum Way : unsigned { kIn = 1, kOut = 2 };

  Exchange(const MpiCall& call, int n_ranks, int rank, MemorySpace place, const Library& library)
      : call_(call), n_ranks_(n_ranks), rank_(rank), place_(place), library_(library) {}
  Status prepare();
  Status prepare_all_to_one();
  Status prepare_one_to_all();
  Status prepare_all_to_all();
  Status prepare_scattered_sum();
  [[nodiscard]] std::vector<Block> blocks(const Side& side, bool one) const {
    return one ? std::vector{mpi::own_block(side, library_)}
               : blocks_of_all(call_, side, n_ranks_, library_);
  }
  std::byte* own_block(const Side& side, std::byte* all, const Lengths& lengths);
  Result<std::byte*> take(size_t bytes);
  // `from` and `to` are the addresses of the block's first byte.
  Status move_in(const std::byte* from, std::byte* to, const Block& block, Word type,
                 MemorySpace memory) const;
  Status move_out(const Move& move) const;
  // Packs data with gaps by the MPI. `from` must be host memory.
  Status pack_block(Word from, std::byte* packed, const Block& block, Word type) const;
  Status unpack_block(const std::byte* packed, Word to, const Block& block, Word type) const;
  template <typename F>
  Status for_each_piece(const Block& block, Word type, const F& move) const;
  // Makes a side usable in place_ and writes the address and lengths to use to `at` and `lengths`.
  Status use(const Side& side, const std::vector<Block>& list, unsigned ways, std::byte** at,
             Lengths* lengths, bool always_scratch = false);
  [[nodiscard]] bool interleaves() const;
  [[nodiscard]] bool is_root() const { return rank_ == call_.root; }

  const MpiCall call_;
  const int n_ranks_, rank_;
  const MemorySpace place_;
  const Library& library_;
  std::optional<Reduction> reduction_;
  std::byte* send_ = nullptr;
  std::byte* recv_ = nullptr;
  size_t count_ = 0;  // in the units of hetccl's function
  Lengths send_lengths_, recv_lengths_;
  std::vector<Move> moves_;
  std::list<KeptType> types_;  // types that moves_ uses, kept until the call is complete
  std::vector<Scratch> scratch_;
};

}  // namespace hetccl::mpi
