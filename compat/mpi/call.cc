#include "mpi/call.h"

#include <limits>
#include <vector>

namespace hetccl::mpi {
namespace {

// The arguments of each collective, one letter each:
//   s sendbuf  n sendcount  v sendcounts  d sdispls  t sendtype
//   r recvbuf  N recvcount  V recvcounts  D rdispls  T recvtype
//   b buffer, c count, y datatype: of both sides     o op  q root  x comm
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
  Function functions[3][2];  // blocking, nonblocking, persistent; plain and large
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

void read_argument(Call& call, char letter, Word word, const Library& library) {
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

// The arguments of a large-count function as the plain one takes them.
class Narrowed {
 public:
  /// False where a number does not fit.
  bool narrow(const Call& call, const Row& row, int n_ranks) {
    words_ = call.words;
    for (size_t i = 0; i < row.arguments.size(); ++i) {
      const char letter = row.arguments[i];
      if (std::string_view("nNc").find(letter) != std::string_view::npos) {
        if (!fits(static_cast<int64_t>(words_.word[i]))) return false;
      } else if (std::string_view("vVdD").find(letter) != std::string_view::npos &&
                 words_.word[i] != 0) {
        const auto* numbers = to_pointer<const int64_t>(words_.word[i]);
        auto& list = lists_.emplace_back();
        for (int r = 0; r < n_ranks; ++r) {
          if (!fits(numbers[r])) return false;
          list.push_back(static_cast<int>(numbers[r]));
        }
        words_.word[i] = from_pointer(list.data());
      }
    }
    return true;
  }
  [[nodiscard]] const Words& words() const { return words_; }

 private:
  static bool fits(int64_t value) {
    return value >= std::numeric_limits<int>::min() && value <= std::numeric_limits<int>::max();
  }
  Words words_;
  std::vector<std::vector<int>> lists_;
};

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

Call read_call(Collective collective, Form form, bool large, const Words& words,
               const Library& library) {
  Call call;
  call.collective = collective;
  call.form = form;
  call.large = large;
  call.words = words;
  const std::string_view letters = row_of(collective).arguments;
  for (size_t i = 0; i < letters.size(); ++i) {
    read_argument(call, letters[i], words.word[i], library);
  }
  if (form != Form::Blocking) call.request = to_pointer<void>(words.word[words.size - 1]);
  return call;
}

int call_mpi(const Call& call) {
  Row& row = row_of(call.collective);
  auto& functions = row.functions[static_cast<size_t>(call.form)];
  if (functions[call.large ? 1 : 0].address() != nullptr) {
    return functions[call.large ? 1 : 0].call(call.words);
  }
  Narrowed narrowed;
  if (!call.large || functions[0].address() == nullptr) {
    return mpi().raise(call.comm, mpi().abi.err_other);
  }
  if (!narrowed.narrow(call, row, mpi().size(call.comm))) {
    return mpi().raise(call.comm, mpi().abi.err_count);
  }
  if (call.form == Form::Blocking) return functions[0].call(narrowed.words());
  // The lists must live until the call is complete, which this MPI does not tell.
  if (is_uneven(call.collective)) return mpi().raise(call.comm, mpi().abi.err_count);
  return functions[0].call(narrowed.words());
}

}  // namespace hetccl::mpi
