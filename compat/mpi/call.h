// A call of a collective, parsed from its arguments.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "mpi/library.h"
#include "mpi/word.h"

namespace hetccl::mpi {

enum class Collective : uint8_t {
  Allreduce,
  Reduce,
  Bcast,
  Allgather,
  Allgatherv,
  ReduceScatter,
  ReduceScatterBlock,
  Alltoall,
  Alltoallv,
  Gather,
  Gatherv,
  Scatter,
  Scatterv,
  Barrier,
};
inline constexpr size_t kCollectives = 14;

enum class Form : uint8_t { Blocking, Nonblocking, Persistent };

/// Name in tuning files: "allreduce", "reduce_scatter_block".
std::string_view name_of(Collective collective);
std::optional<Collective> collective_of(std::string_view name);
/// The call's arguments, one letter each; call.cc explains the letters.
std::string_view arguments_of(Collective collective);
bool reduces(Collective collective);
/// Whether the blocks may differ in length (the "v" forms).
bool is_uneven(Collective collective);

/// An array of counts or displacements, in elements: int, or, in the large-count functions,
/// MPI_Count and MPI_Aint.
class Numbers {
 public:
  Numbers() = default;
  Numbers(Word array, bool large) : array_(to_pointer<const void>(array)), large_(large) {}
  explicit Numbers(const std::vector<int64_t>& list) : array_(list.data()), large_(true) {}
  int64_t operator[](int i) const {
    return large_ ? static_cast<const int64_t*>(array_)[i] : static_cast<const int*>(array_)[i];
  }
  /// The sum of the first n numbers.
  [[nodiscard]] bool is_given() const { return array_ != nullptr; }
  [[nodiscard]] int64_t sum(int n) const {
    int64_t total = 0;
    for (int i = 0; i < n; ++i) total += (*this)[i];
    return total;
  }

 private:
  const void* array_ = nullptr;
  bool large_ = false;
};

/// The data that a rank sends, or that it receives. Each rank's block has `count` elements; in the
/// uneven collectives rank r's block has counts[r] elements and begins at element displs[r].
struct Side {
  Word buffer = 0;
  bool in_place = false;  ///< MPI_IN_PLACE
  int64_t count = 0;
  Numbers counts, displs;
  Word type = 0;
};

struct MpiCall {
  Collective collective = Collective::Barrier;
  Form form = Form::Blocking;
  bool large = false;   ///< a large-count function (MPI_Count)
  Words words;          ///< as the program passed them; the MPI gets these
  Side send{}, recv{};  ///< for MPI_Bcast both are the one buffer
  Word op = 0;
  int root = 0;
  Word comm = 0;
  void* request = nullptr;  ///< address for the new request's handle
};

/// Parses `call.words`, the arguments of the C function. In nonblocking and persistent calls the
/// request comes last.
void read_arguments(MpiCall& call, const Library& library);

/// The sides of a call that are significant on this rank. The root's side is not significant on
/// other ranks, and a side in place is not either.
struct Sides {
  bool send = true, recv = true;
};
Sides significant_sides(const MpiCall& call, int rank);
/// The same on a communicator that may join two groups.
Sides significant_sides(const MpiCall& call, const Library& library);

/// Whether a count that is significant on this rank is negative.
bool has_negative_count(const MpiCall& call, int n_ranks, int rank);

/// Number of blocks of a side that has one block for each rank. If the communicator joins two
/// groups, these are the ranks of the other group; only the reduce-scatters spread their result
/// over their own group.
int count_blocks(const MpiCall& call, const Library& library);

/// A call that is made several times. It owns copies of the lists of lengths, because programs free
/// the lists earlier than the standard allows: MPIs read them early.
class KeptCall {
 public:
  KeptCall(const MpiCall& call, int n_ranks, int rank);
  KeptCall(const KeptCall&) = delete;
  KeptCall& operator=(const KeptCall&) = delete;
  [[nodiscard]] const MpiCall& call() const { return call_; }

 private:
  MpiCall call_;
  std::vector<int64_t> lists_[4];
};

/// Makes the call with the MPI's own function. If the MPI lacks a large-count function, calls the
/// plain one, provided the counts fit.
int call_mpi(const MpiCall& call);

}  // namespace hetccl::mpi
