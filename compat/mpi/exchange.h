// A call of MPI as a call of hetccl: the same data, in memory that the rank's endpoint can use.
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

/// What of a call's length all ranks know, since they must decide alike. In bytes.
struct Volume {
  int64_t average = -1;  ///< of a block, MPICH's avg_msg_size; -1: no rank knows all lengths
  int64_t total = -1;    ///< of all blocks
  int64_t count = -1;    ///< elements of a sum; of what is only moved, ranks' types may differ
};
Volume volume_of(const MpiCall& call, int n_ranks, int rank, const Library& library);

/// The type and operator of a call that reduces, in hetccl's terms.
struct Reduction {
  hetcclDataType_t type;
  hetcclRedOp_t op;
  int elements;  ///< of `type`, in one of MPI's
};
/// Whether every vendor's library has it: NCCL and RCCL have no bitwise operators, and no integers
/// of 16 bits.
bool reduces_on_devices(const Reduction& reduction);
/// Nothing where hetccl does not compute exactly what MPI defines.
std::optional<Reduction> reduction_of(const MpiCall& call, const Library& library);

/// Whether the types of this rank's buffers have no gaps: others may pass other types.
bool is_contiguous(const MpiCall& call, int rank, const Library& library);
/// Where this rank's buffers lie: on a GPU, if one of them does.
MemorySpace memory_of(const MpiCall& call, int rank);

/// One call, ready to be made. Lives until the call is complete.
class Exchange {
 public:
  /// What lies elsewhere than `place`, or has gaps, is copied into scratch memory there, which may
  /// wait for a GPU.
  static Result<std::unique_ptr<Exchange>> prepare(const MpiCall& call, int n_ranks, int rank,
                                                   MemorySpace place, const Library& library);

  /// Calls hetccl. An all-reduce may be called in `parts`.
  hetcclResult_t launch(hetcclComm_t comm, hetcclStream_t stream, size_t part = 0,
                        size_t parts = 1) const;
  /// Brings results from scratch memory to where the caller wants them. May wait for a GPU.
  Status deliver();

 private:
  // Of results, when the call is complete.
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
  // `from` and `to` are where the block begins.
  Status move_in(const std::byte* from, std::byte* to, const Block& block, Word type,
                 MemorySpace memory) const;
  Status move_out(const Move& move) const;
  // Of data with gaps, by the MPI. The program's side is in host memory.
  Status pack_block(Word from, std::byte* packed, const Block& block, Word type) const;
  Status unpack_block(const std::byte* packed, Word to, const Block& block, Word type) const;
  template <typename F>
  Status for_each_piece(const Block& block, Word type, const F& move) const;
  // Makes a side usable at place_; `at` and `lengths` tell where it is then.
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
  size_t count_ = 0;  // as hetccl's function counts
  Lengths send_lengths_, recv_lengths_;
  std::vector<Move> moves_;
  std::list<KeptType> types_;  // of moves_, of a call that returns before it is complete
  std::vector<Scratch> scratch_;
};

}  // namespace hetccl::mpi
