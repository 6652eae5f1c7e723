// One call of a collective, read from its arguments.
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

/// The name as tuning files have it: "allreduce", "reduce_scatter_block".
std::string_view name_of(Collective collective);
std::optional<Collective> collective_of(std::string_view name);
/// Its arguments, one letter each, as call.cc explains.
std::string_view arguments_of(Collective collective);
bool reduces(Collective collective);
/// Whether it has blocks of unlike lengths.
bool is_uneven(Collective collective);

/// An array of counts or of displacements, in elements: of int, or, in the large-count functions,
/// of MPI_Count and MPI_Aint.
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
/// uneven collectives rank r's has counts[r] elements, from element displs[r] on.
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
  bool large = false;   ///< one of the functions with MPI_Count
  Words words;          ///< as they were passed, for the MPI
  Side send{}, recv{};  ///< of MPI_Bcast both are its buffer
  Word op = 0;
  int root = 0;
  Word comm = 0;
  void* request = nullptr;  ///< where its handle goes
};

/// Fills in what `call.words` say, which are those of the C function: of a nonblocking or
/// persistent one the request comes last.
void read_arguments(MpiCall& call, const Library& library);

/// Which sides of a call mean something on this rank: a root's do not on the others, nor does one
/// that is in place.
struct Sides {
  bool send = true, recv = true;
};
Sides significant_sides(const MpiCall& call, int rank);
/// The same on a communicator that may join two groups.
Sides significant_sides(const MpiCall& call, const Library& library);

/// Whether a count that means something on this rank is less than 0.
bool has_negative_count(const MpiCall& call, int n_ranks, int rank);

/// How many blocks a side has that has one for each rank. On a communicator that joins two groups
/// the ranks are those of the other group, but for the reduce-scatters, which spread their result
/// over their own.
int count_blocks(const MpiCall& call, const Library& library);

/// A call that is made more than once, with its own copies of the lists of lengths: programs free
/// them sooner than MPI lets them, since MPIs read them early.
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

/// Makes the call with the MPI's own function. A large-count function that the MPI lacks is its
/// plain one, where the counts fit.
int call_mpi(const MpiCall& call);

}  // namespace hetccl::mpi
