#include "mpi/call.h"

#include <deque>
#include <limits>
#include <mutex>
#include <utility>

namespace hetccl::mpi {
namespace {

// The arguments of each collective, one letter each:
//   s sendbuf  n sendcount  v sendcounts  d sdispls  t sendtype
//   r recvbuf  N recvcount  V recvcounts  D rdispls  T recvtype
//   b, c, y: buffer, count and datatype that serve both sides
//   o op  q root  x comm
struct Row {
  constexpr Row(const char* lower, const char* upper, std::string_view letters, bool adds,
                bool has_uneven_blocks)
      : name(lower),
        arguments(letters),
        reduces(adds),
        uneven(has_uneven_blocks),
        functions{{Function("PMPI_", upper), Function("PMPI_", upper, "_c")},
                  {Function("PMPI_I", lower), Function("PMPI_I", lower, "_c")},
                  {Function("PMPI_", upper, "_init"), Function("PMPI_", upper, "_init_c")}} {}

  std::string_view name, arguments;
  bool reduces, uneven;
  Function functions[3][2];  // [blocking, nonblocking, persistent][plain, large count]
};

constinit std::array<Row, kCollectives> rows = {{
    Row("allreduce", "Allreduce", "srcyox", true, false),
    Row("reduce", "Reduce", "srcyoqx", true, false),
    Row("bcast", "Bcast", "bcyqx", false, false),
    Row("allgather", "Allgather", "sntrNTx", false, false),
    Row("allgatherv", "Allgatherv", "sntrVDTx", false, true),
    Row("reduce_scatter", "Reduce_scatter", "srVyox", true, true),
    Row("reduce_scatter_block", "Reduce_scatter_block", "srNyox", true, false),
    Row("alltoall", "Alltoall", "sntrNTx", false, false),
    Row("alltoallv", "Alltoallv", "svdtrVDTx", false, true),
    Row("gather", "Gather", "sntrNTqx", false, false),
    Row("gatherv", "Gatherv", "sntrVDTqx", false, true),
    Row("scatter", "Scatter", "sntrNTqx", false, false),
    Row("scatterv", "Scatterv", "svdtrNTqx", false, true),
    Row("barrier", "Barrier", "x", false, false),
}};

Row& row_of(Collective collective) {
  return rows[static_cast<size_t>(collective)];
}

int64_t number(Word word, bool large) {
  return large ? static_cast<int64_t>(word) : to_int(word);
}

void read_argument(MpiCall& call, char letter, Word word, const Library& library) {
  const auto buffer = [&](Side& side) {
    side.buffer = word;
    side.in_place = word == library.abi.in_place;
  };
  switch (letter) {
    case 's':
      return buffer(call.send);
    case 'r':
      return buffer(call.recv);
    case 'b':
      call.send.buffer = call.recv.buffer = word;
      return;
    case 'n':
      call.send.count = number(word, call.large);
      return;
    case 'N':
      call.recv.count = number(word, call.large);
      return;
    case 'c':
      call.send.count = call.recv.count = number(word, call.large);
      return;
    case 'v':
      call.send.counts = Numbers(word, call.large);
      return;
    case 'V':
      call.recv.counts = Numbers(word, call.large);
      return;
    case 'd':
      call.send.displs = Numbers(word, call.large);
      return;
    case 'D':
      call.recv.displs = Numbers(word, call.large);
      return;
    case 't':
      call.send.type = library.handle(word);
      return;
    case 'T':
      call.recv.type = library.handle(word);
      return;
    case 'y':
      call.send.type = call.recv.type = library.handle(word);
      return;
    case 'o':
      call.op = library.handle(word);
      return;
    case 'q':
      call.root = to_int(word);
      return;
    default:
      call.comm = library.handle(word);
      return;
  }
}

// The arguments of a large-count function, converted to those of the plain one.
class Narrowed {
 public:
  /// Returns false if a number does not fit an int. A list has `n_ranks` numbers.
  bool narrow(const MpiCall& call, Sides sides, int n_ranks) {
    words_ = call.words;
    const std::string_view letters = arguments_of(call.collective);
    for (size_t i = 0; i < letters.size(); ++i) {
      const bool counts = is_one_of(letters[i], "nNc"), lists = is_one_of(letters[i], "vVdD");
      const bool means =
          is_one_of(letters[i], "NVD") ? sides.recv : sides.send || letters[i] == 'c';
      if (!means || (!counts && !lists)) continue;
      if (counts && !fits(static_cast<int64_t>(words_.word[i]))) return false;
      if (lists && !narrow_list(words_.word[i], n_ranks)) return false;
    }
    return true;
  }
  [[nodiscard]] const Words& words() const { return words_; }

 private:
  static bool is_one_of(char letter, std::string_view letters) {
    return letters.find(letter) != std::string_view::npos;
  }
  static bool fits(int64_t value) {
    return value >= std::numeric_limits<int>::min() && value <= std::numeric_limits<int>::max();
  }
  bool narrow_list(Word& word, int n_ranks) {
    const auto* numbers = to_pointer<const int64_t>(word);
    auto& list = lists_.emplace_back();
    for (int r = 0; r < n_ranks; ++r) {
      if (!fits(numbers[r])) return false;
      list.push_back(static_cast<int>(numbers[r]));
    }
    word = from_pointer(list.data());
    return true;
  }
  Words words_;
  std::vector<std::vector<int>> lists_;
};

// Keeps the lists of a call that goes on after it returns. Open MPI, which lacks large-count
// functions, has read them by then. The standard does not promise that, so the latest 256 stay.
const Words& keep(Narrowed narrowed) {
  constexpr size_t kLatest = 256;
  static std::mutex mutex;
  static auto* kept = new std::deque<Narrowed>;
  const std::lock_guard lock(mutex);
  if (kept->size() == kLatest) kept->pop_front();
  kept->push_back(std::move(narrowed));
  return kept->back().words();
}

}  // namespace

std::string_view name_of(Collective collective) {
  return row_of(collective).name;
}

std::optional<Collective> collective_of(std::string_view name) {
  for (size_t i = 0; i < kCollectives; ++i) {
    if (rows[i].name == name) return static_cast<Collective>(i);
  }
  return std::nullopt;
}

std::string_view arguments_of(Collective collective) {
  return row_of(collective).arguments;
}

bool reduces(Collective collective) {
  return row_of(collective).reduces;
}

bool is_uneven(Collective collective) {
  return row_of(collective).uneven;
}

void read_arguments(MpiCall& call, const Library& library) {
  const Words& words = call.words;
  const std::string_view letters = row_of(call.collective).arguments;
  for (size_t i = 0; i < letters.size(); ++i) {
    read_argument(call, letters[i], words.word[i], library);
  }
  if (call.form != Form::Blocking) call.request = to_pointer<void>(words.word[words.size - 1]);
}

Sides significant_sides(const MpiCall& call, int rank) {
  const bool root = rank == call.root;
  switch (call.collective) {
    case Collective::Bcast:
      return {root, !root};
    case Collective::Reduce:
    case Collective::Gather:
    case Collective::Gatherv:
      return {!call.send.in_place, root};
    case Collective::Scatter:
    case Collective::Scatterv:
      return {root, !call.recv.in_place};
    case Collective::Barrier:
      return {false, false};
    default:
      return {!call.send.in_place, true};
  }
}

// On a communicator between two groups, the root passes MPI_ROOT, the ranks of the other group pass
// the root's number, and the rest of the root's group passes MPI_PROC_NULL.
Sides significant_sides(const MpiCall& call, const Library& library) {
  const int rank = library.rank(call.comm);
  if (!library.is_inter(call.comm)) return significant_sides(call, rank);
  const bool root = call.root == library.abi.root;
  const bool other = !root && call.root != library.abi.proc_null;
  switch (call.collective) {
    case Collective::Reduce:
    case Collective::Gather:
    case Collective::Gatherv:
      return {other, root};
    case Collective::Bcast:
    case Collective::Scatter:
    case Collective::Scatterv:
      return {root, other};
    case Collective::Barrier:
      return {false, false};
    default:
      return {true, true};
  }
}

bool has_negative_count(const MpiCall& call, int n_ranks, int rank) {
  const auto is_negative = [n_ranks](const Side& side) {
    for (int i = 0; side.counts.is_given() && i < n_ranks; ++i) {
      if (side.counts[i] < 0) return true;
    }
    return side.count < 0;
  };
  const Sides sides = significant_sides(call, rank);
  return (sides.send && is_negative(call.send)) || (sides.recv && is_negative(call.recv));
}

int count_blocks(const MpiCall& call, const Library& library) {
  const bool own = call.collective == Collective::ReduceScatter ||
                   call.collective == Collective::ReduceScatterBlock;
  return own ? library.size(call.comm) : library.peers(call.comm);
}

// Only the root's lists are significant: other ranks may pass any address.
KeptCall::KeptCall(const MpiCall& call, int n_ranks, int rank) : call_(call) {
  const bool root = rank == call.root;
  const std::string_view letters = arguments_of(call.collective);
  const auto keep_list = [&](Numbers& numbers, char letter, bool means,
                             std::vector<int64_t>& list) {
    if (!means || letters.find(letter) == std::string_view::npos) return;
    for (int r = 0; r < n_ranks; ++r) list.push_back(numbers[r]);
    numbers = Numbers(list);
  };
  const bool sends = call.collective != Collective::Scatterv || root;
  const bool receives = call.collective != Collective::Gatherv || root;
  keep_list(call_.send.counts, 'v', sends, lists_[0]);
  keep_list(call_.send.displs, 'd', sends, lists_[1]);
  keep_list(call_.recv.counts, 'V', receives, lists_[2]);
  keep_list(call_.recv.displs, 'D', receives, lists_[3]);
}

int call_mpi(const MpiCall& call) {
  Row& row = row_of(call.collective);
  auto& functions = row.functions[static_cast<size_t>(call.form)];
  if (functions[call.large ? 1 : 0].address() != nullptr) {
    return functions[call.large ? 1 : 0].call(call.words);
  }
  if (!call.large || functions[0].address() == nullptr) {
    return mpi().raise(call.comm, mpi().abi.err_other);
  }
  Narrowed narrowed;
  if (!narrowed.narrow(call, significant_sides(call, mpi()), count_blocks(call, mpi()))) {
    return mpi().raise(call.comm, mpi().abi.err_count);
  }
  if (call.form == Form::Blocking) return functions[0].call(narrowed.words());
  return functions[0].call(keep(std::move(narrowed)));
}

}  // namespace hetccl::mpi
