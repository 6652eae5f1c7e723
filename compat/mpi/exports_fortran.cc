// The functions of Fortran. MPICH's, and its relatives', call those of C, where this library
// stands; Open MPI's call the MPI's own, so this library stands before them, too. Compilers call a
// function "mpi_bcast_", and in the module mpi_f08 Open MPI calls it "mpi_bcast_f08_"; both take
// every argument by its address, handles as integers.
#include "mpi/exports.h"
#include "mpi/job.h"
#include "mpi/serve.h"
#include "mpi/waits.h"

namespace hetccl::mpi {
namespace {

Function comm_f2c("PMPI_Comm_f2c"), type_f2c("PMPI_Type_f2c"), op_f2c("PMPI_Op_f2c"),
    info_f2c("PMPI_Info_f2c"), request_f2c("PMPI_Request_f2c"), request_c2f("PMPI_Request_c2f");

enum class Module { Mpi, F08 };

bool is_open_mpi() {
  return mpi().abi.name == kOpenMpiAbi.name;
}

// An MPI may be built with INTEGERs of 8 bytes: what it is passed is then the MPI's alone.
bool has_plain_integers() {
  static const bool plain = mpi().fortran_integer_bytes == sizeof(int);
  return plain;
}

// Whether functions of requests come to this library only here.
bool stands_alone(Module module) {
  return has_plain_integers() && (module == Module::F08 || is_open_mpi());
}

// These give a handle, a pointer, instead of a code.
Word convert(Function& function, Word integer) {
  using Convert = void* (*)(int);
  const int value = *to_pointer<const int>(integer);
  auto* call = reinterpret_cast<Convert>(function.address());
  // MPICH's handles of C are the integers of Fortran.
  return call == nullptr ? static_cast<uint32_t>(value) : from_pointer(call(value));
}

int to_fortran(Word request) {
  using Convert = int (*)(void*);
  return reinterpret_cast<Convert>(request_c2f.address())(to_pointer<void>(request));
}

// Fortran's MPI_IN_PLACE and MPI_BOTTOM are variables.
Word buffer(Word address, const Library& library) {
  static void* const in_place = find_symbol("mpi_fortran_in_place_");
  static void* const bottom = find_symbol("mpi_fortran_bottom_");
  if (to_pointer<void>(address) == in_place) return library.abi.in_place;
  return to_pointer<void>(address) == bottom ? 0 : address;
}

Word to_c(char letter, Word word, const Library& library) {
  switch (letter) {
    case 's':
    case 'r':
    case 'b':
      return buffer(word, library);
    case 't':
    case 'T':
    case 'y':
      return convert(type_f2c, word);
    case 'o':
      return convert(op_f2c, word);
    case 'x':
      return convert(comm_f2c, word);
    case 'n':
    case 'N':
    case 'c':
    case 'q':
      return from_int(*to_pointer<const int>(word));
    default:
      return word;  // arrays of integers
  }
}

// The Fortran functions return nothing: their last argument, which may be left out, is for the
// code.
class Subroutine {
 public:
  constexpr explicit Subroutine(const char* name) : name_(name) {}
  int call(const Words& words) {
    if (address_ == nullptr) address_ = find_next(name_);
    Words complete = words;
    int code = 0;
    Word& error = complete.word[complete.size - 1];
    if (error == 0) error = from_pointer(&code);
    invoke(address_, complete);
    return *to_pointer<const int>(error);
  }
  [[nodiscard]] Caller caller() {
    return [this](const Words& words) { return call(words); };
  }

 private:
  const char* const name_;
  void* address_ = nullptr;
};

void set(Word place, int value) {
  if (place != 0) *to_pointer<int>(place) = value;
}

// The last argument.
void set_code(const Words& words, int code) {
  set(words.word[words.size - 1], code);
}

void serve_fortran(Subroutine& next, Collective collective, Form form, const Words& words) {
  const Library& library = mpi();
  if (!is_open_mpi() || !has_plain_integers()) {
    next.call(words);
    return;
  }
  const std::string_view letters = arguments_of(collective);
  Words converted;
  for (size_t i = 0; i < letters.size(); ++i) {
    converted.push(to_c(letters[i], words.word[i], library));
  }
  const Word error = words.word[words.size - 1];
  if (form == Form::Blocking) {
    set(error, serve({collective, form, false, converted}));
    return;
  }
  Word request = library.request_null;
  if (form == Form::Persistent) converted.push(convert(info_f2c, words.word[letters.size()]));
  converted.push(from_pointer(&request));
  const int code = serve({collective, form, false, converted});
  if (code == 0) set(words.word[words.size - 2], to_fortran(request));
  set(error, code);
}

void initialize(Subroutine& next, const Words& words) {
  const int code = next.call(words);
  Library* library = Library::get();
  if (code == 0 && library != nullptr && Job::get() == nullptr) Job::start(*library);
}

std::function<std::vector<Word>()> c_handles(Word array, int n) {
  return [array, n] {
    std::vector<Word> list;
    for (int i = 0; i < n; ++i)
      list.push_back(convert(request_f2c, array + 4U * static_cast<Word>(i)));
    return list;
  };
}

// `one`: for one request, and not for a number of them, which comes first.
void wait_for_all_fortran(Module module, Subroutine& wait, const Words& words, bool one) {
  if (!stands_alone(module)) {
    wait.call(words);
    return;
  }
  const Word array = words.word[one ? 0 : 1];
  const int n = one ? 1 : *to_pointer<const int>(words.word[0]);
  set_code(words, wait_for_all(wait.caller(), words, c_handles(array, n)));
}

void test_fortran(Subroutine& test, const Words& words) {
  set_code(words, test_for(test.caller(), words));
}

void start_fortran(Module module, Subroutine& next, Word request, Word error) {
  int code = 0;
  if (Job::get() != nullptr && stands_alone(module) &&
      start_request(convert(request_f2c, request), &code)) {
    set(error, code);
  } else {
    next.call(Words(request, error));
  }
}

void start_all_fortran(Module module, Subroutine& start, Word n, Word requests, Word error) {
  set(error, 0);
  for (int i = 0; i < *to_pointer<const int>(n); ++i) {
    int code = 0;
    start_fortran(module, start, requests + 4U * static_cast<Word>(i), from_pointer(&code));
    set(error, code);
    if (code != 0) return;
  }
}

void free_fortran(Module module, Subroutine& next, const Words& words) {
  Job* job = Job::get();
  if (job != nullptr && stands_alone(module)) {
    job->requests().forget_persistent(convert(request_f2c, words.word[0]));
  }
  next.call(words);
}

}  // namespace

#define HETCCL_FORTRAN(name, n) \
  extern "C" __attribute__((visibility("default"))) void name(HETCCL_WORDS_##n)

// A function by both its names.
#define HETCCL_FORTRAN_FORM(lower, collective, form, n)                               \
  HETCCL_FORTRAN(mpi_##lower##_, n) {                                                 \
    static Subroutine next("mpi_" #lower "_");                                        \
    serve_fortran(next, Collective::collective, Form::form, Words(HETCCL_NAMES_##n)); \
  }                                                                                   \
  HETCCL_FORTRAN(mpi_##lower##_f08_, n) {                                             \
    static Subroutine next("mpi_" #lower "_f08_");                                    \
    serve_fortran(next, Collective::collective, Form::form, Words(HETCCL_NAMES_##n)); \
  }

// The numbers of arguments are those of C, and one for the error code.
#define HETCCL_FORTRAN_COLLECTIVE(lower, collective, n, n_nonblocking, n_persistent) \
  HETCCL_FORTRAN_FORM(lower, collective, Blocking, n)                                \
  HETCCL_FORTRAN_FORM(i##lower, collective, Nonblocking, n_nonblocking)              \
  HETCCL_FORTRAN_FORM(lower##_init, collective, Persistent, n_persistent)

HETCCL_FORTRAN_COLLECTIVE(allreduce, Allreduce, 7, 8, 9)
HETCCL_FORTRAN_COLLECTIVE(reduce, Reduce, 8, 9, 10)
HETCCL_FORTRAN_COLLECTIVE(bcast, Bcast, 6, 7, 8)
HETCCL_FORTRAN_COLLECTIVE(allgather, Allgather, 8, 9, 10)
HETCCL_FORTRAN_COLLECTIVE(allgatherv, Allgatherv, 9, 10, 11)
HETCCL_FORTRAN_COLLECTIVE(reduce_scatter, ReduceScatter, 7, 8, 9)
HETCCL_FORTRAN_COLLECTIVE(reduce_scatter_block, ReduceScatterBlock, 7, 8, 9)
HETCCL_FORTRAN_COLLECTIVE(alltoall, Alltoall, 8, 9, 10)
HETCCL_FORTRAN_COLLECTIVE(alltoallv, Alltoallv, 10, 11, 12)
HETCCL_FORTRAN_COLLECTIVE(gather, Gather, 9, 10, 11)
HETCCL_FORTRAN_COLLECTIVE(gatherv, Gatherv, 10, 11, 12)
HETCCL_FORTRAN_COLLECTIVE(scatter, Scatter, 9, 10, 11)
HETCCL_FORTRAN_COLLECTIVE(scatterv, Scatterv, 10, 11, 12)
HETCCL_FORTRAN_COLLECTIVE(barrier, Barrier, 2, 3, 4)

#define HETCCL_FORTRAN_REQUESTS(suffix, module)                                                    \
  HETCCL_FORTRAN(mpi_init##suffix, 1) {                                                            \
    static Subroutine next("mpi_init" #suffix);                                                    \
    initialize(next, Words(HETCCL_NAMES_1));                                                       \
  }                                                                                                \
  HETCCL_FORTRAN(mpi_init_thread##suffix, 3) {                                                     \
    static Subroutine next("mpi_init_thread" #suffix);                                             \
    initialize(next, Words(HETCCL_NAMES_3));                                                       \
  }                                                                                                \
  HETCCL_FORTRAN(mpi_wait##suffix, 3) {                                                            \
    static Subroutine wait("mpi_wait" #suffix);                                                    \
    wait_for_all_fortran(Module::module, wait, Words(HETCCL_NAMES_3), true);                       \
  }                                                                                                \
  HETCCL_FORTRAN(mpi_waitall##suffix, 4) {                                                         \
    static Subroutine wait("mpi_waitall" #suffix);                                                 \
    wait_for_all_fortran(Module::module, wait, Words(HETCCL_NAMES_4), false);                      \
  }                                                                                                \
  HETCCL_FORTRAN(mpi_waitany##suffix, 5) {                                                         \
    static Subroutine wait("mpi_waitany" #suffix), test("mpi_testany" #suffix);                    \
    const Words words(HETCCL_NAMES_5);                                                             \
    set_code(words, wait_for_any(wait.caller(), test.caller(), words, 3));                         \
  }                                                                                                \
  HETCCL_FORTRAN(mpi_waitsome##suffix, 6) {                                                        \
    static Subroutine wait("mpi_waitsome" #suffix), test("mpi_testsome" #suffix);                  \
    const Words words(HETCCL_NAMES_6);                                                             \
    set_code(words, wait_for_some(wait.caller(), test.caller(), words, to_pointer<const int>(c))); \
  }                                                                                                \
  HETCCL_FORTRAN(mpi_test##suffix, 4) {                                                            \
    static Subroutine next("mpi_test" #suffix);                                                    \
    test_fortran(next, Words(HETCCL_NAMES_4));                                                     \
  }                                                                                                \
  HETCCL_FORTRAN(mpi_testall##suffix, 5) {                                                         \
    static Subroutine next("mpi_testall" #suffix);                                                 \
    test_fortran(next, Words(HETCCL_NAMES_5));                                                     \
  }                                                                                                \
  HETCCL_FORTRAN(mpi_testany##suffix, 6) {                                                         \
    static Subroutine next("mpi_testany" #suffix);                                                 \
    test_fortran(next, Words(HETCCL_NAMES_6));                                                     \
  }                                                                                                \
  HETCCL_FORTRAN(mpi_testsome##suffix, 6) {                                                        \
    static Subroutine next("mpi_testsome" #suffix);                                                \
    test_fortran(next, Words(HETCCL_NAMES_6));                                                     \
  }                                                                                                \
  HETCCL_FORTRAN(mpi_request_get_status##suffix, 4) {                                              \
    static Subroutine next("mpi_request_get_status" #suffix);                                      \
    test_fortran(next, Words(HETCCL_NAMES_4));                                                     \
  }                                                                                                \
  HETCCL_FORTRAN(mpi_start##suffix, 2) {                                                           \
    static Subroutine next("mpi_start" #suffix);                                                   \
    start_fortran(Module::module, next, a, b);                                                     \
  }                                                                                                \
  HETCCL_FORTRAN(mpi_startall##suffix, 3) {                                                        \
    static Subroutine start("mpi_start" #suffix);                                                  \
    start_all_fortran(Module::module, start, a, b, c);                                             \
  }                                                                                                \
  HETCCL_FORTRAN(mpi_request_free##suffix, 2) {                                                    \
    static Subroutine next("mpi_request_free" #suffix);                                            \
    free_fortran(Module::module, next, Words(HETCCL_NAMES_2));                                     \
  }

HETCCL_FORTRAN_REQUESTS(_, Mpi)
HETCCL_FORTRAN_REQUESTS(_f08_, F08)

}  // namespace hetccl::mpi
