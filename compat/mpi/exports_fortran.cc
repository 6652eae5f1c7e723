// The Fortran functions. In MPICH and its relatives they call the C functions, which this library
// exports. Open MPI's call the MPI directly, so this library exports the Fortran functions too.
// Compilers name a function "mpi_bcast_", and Open MPI's module mpi_f08 names it "mpi_bcast_f08_".
// All pass every argument by address, and handles as integers.
#include <atomic>

#include "mpi/exports.h"
#include "mpi/guard.h"
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

// An MPI may be built with 8-byte INTEGERs: its calls then go to the MPI unread.
bool has_plain_integers() {
  static const bool plain = mpi().fortran_integer_bytes == sizeof(int);
  return plain;
}

// Whether request functions reach this library only through their Fortran names.
bool stands_alone(Module module) {
  return has_plain_integers() && (module == Module::F08 || is_open_mpi());
}

// Calls a conversion, which returns a handle (a pointer) instead of an error code.
Word convert(Function& function, Word integer) {
  using Convert = void* (*)(int);
  const int value = *to_pointer<const int>(integer);
  auto* call = reinterpret_cast<Convert>(function.address());
  // Without a conversion, as in MPICH, C handles equal Fortran's integers.
  return call == nullptr ? static_cast<uint32_t>(value) : from_pointer(call(value));
}

int to_fortran(Word request) {
  using Convert = int (*)(void*);
  return reinterpret_cast<Convert>(request_c2f.address())(to_pointer<void>(request));
}

// In Fortran MPI_IN_PLACE and MPI_BOTTOM are variables, known by their addresses.
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

// A Fortran subroutine. It returns nothing: the error code goes to its last argument, which may be
// omitted.
class Subroutine {
 public:
  constexpr explicit Subroutine(const char* name) : name_(name) {}
  int call(const Words& words) {
    void* address = address_.load(std::memory_order_acquire);
    if (address == nullptr) address_.store(address = find_next(name_), std::memory_order_release);
    Words complete = words;
    int code = 0;
    Word& error = complete.word[complete.size - 1];
    if (error == 0) error = from_pointer(&code);
    invoke(address, complete);
    return *to_pointer<const int>(error);
  }
  [[nodiscard]] Caller caller() {
    return [this](const Words& words) { return call(words); };
  }

 private:
  const char* const name_;
  std::atomic<void*> address_{nullptr};
};

void set(Word place, int value) {
  if (place != 0) *to_pointer<int>(place) = value;
}

// Writes the error code to the last argument.
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

bool fortran_ignores(Word statuses) {
  for (const char* name : {"mpi_fortran_status_ignore_", "mpi_fortran_statuses_ignore_"})
    if (to_pointer<void>(statuses) == find_symbol(name)) return true;
  return false;
}

constexpr Language kFortran = {
    [](Word number) { return *to_pointer<const int>(number); },
    [](Word array, int i) { return convert(request_f2c, array + 4U * static_cast<Word>(i)); },
    fortran_ignores, 1};

// `test` is the MPI's test for functions that wait for some of their requests.
void wait_fortran(Module module, Which which, Subroutine& wait, const Words& words,
                  Subroutine* test = nullptr) {
  if (!stands_alone(module)) {
    wait.call(words);
    return;
  }
  set_code(words, wait_for(kFortran, which, wait.caller(),
                           test != nullptr ? test->caller() : Caller(), words));
}

void test_fortran(Module module, Which which, Subroutine& test, const Words& words,
                  bool keeps = false) {
  if (!stands_alone(module)) {
    test.call(words);
    return;
  }
  set_code(words, test_for(kFortran, which, test.caller(), words, keeps));
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

// `start` is the MPI's function that starts one request.
void start_all_fortran(Module module, Subroutine& next, Subroutine& start, const Words& words) {
  if (!stands_alone(module)) {
    next.call(words);
    return;
  }
  set_code(words, 0);
  for (int i = 0; i < *to_pointer<const int>(words.word[0]); ++i) {
    int code = 0;
    start_fortran(module, start, words.word[1] + 4U * static_cast<Word>(i), from_pointer(&code));
    set_code(words, code);
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

// Runs `body`, which writes the last argument.
template <typename Body>
void guard_fortran(const Words& words, const Body& body) noexcept {
  const int code = guarded([&] {
    body();
    return 0;
  });
  if (code != 0) set_code(words, code);
}

}  // namespace

#define HETCCL_FORTRAN(name, n) \
  extern "C" __attribute__((visibility("default"))) void name(HETCCL_WORDS_##n)

// Exports a function under one of its names; `action` calls one of the functions above.
#define HETCCL_FORTRAN_FUNCTION(name, n, action) \
  HETCCL_FORTRAN(name, n) {                      \
    static Subroutine next(#name);               \
    const Words words(HETCCL_NAMES_##n);         \
    guard_fortran(words, [&] { action; });       \
  }

#define HETCCL_FORTRAN_FORM(lower, collective, form, n)                                   \
  HETCCL_FORTRAN_FUNCTION(mpi_##lower##_, n,                                              \
                          serve_fortran(next, Collective::collective, Form::form, words)) \
  HETCCL_FORTRAN_FUNCTION(mpi_##lower##_f08_, n,                                          \
                          serve_fortran(next, Collective::collective, Form::form, words))

// The argument counts are those of C plus the error code.
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

// `other` is a second function of the MPI.
#define HETCCL_FORTRAN_TWO(name, n, other_name, action) \
  HETCCL_FORTRAN(name, n) {                             \
    static Subroutine next(#name), other(other_name);   \
    const Words words(HETCCL_NAMES_##n);                \
    guard_fortran(words, [&] { action; });              \
  }

#define HETCCL_FORTRAN_REQUESTS(suffix, module)                                                   \
  HETCCL_FORTRAN_FUNCTION(mpi_init##suffix, 1, initialize(next, words))                           \
  HETCCL_FORTRAN_FUNCTION(mpi_init_thread##suffix, 3, initialize(next, words))                    \
  HETCCL_FORTRAN_FUNCTION(mpi_wait##suffix, 3,                                                    \
                          wait_fortran(Module::module, Which::One, next, words))                  \
  HETCCL_FORTRAN_FUNCTION(mpi_waitall##suffix, 4,                                                 \
                          wait_fortran(Module::module, Which::All, next, words))                  \
  HETCCL_FORTRAN_FUNCTION(mpi_test##suffix, 4,                                                    \
                          test_fortran(Module::module, Which::One, next, words))                  \
  HETCCL_FORTRAN_FUNCTION(mpi_testall##suffix, 5,                                                 \
                          test_fortran(Module::module, Which::All, next, words))                  \
  HETCCL_FORTRAN_FUNCTION(mpi_testany##suffix, 6,                                                 \
                          test_fortran(Module::module, Which::Any, next, words))                  \
  HETCCL_FORTRAN_FUNCTION(mpi_testsome##suffix, 6,                                                \
                          test_fortran(Module::module, Which::Some, next, words))                 \
  HETCCL_FORTRAN_FUNCTION(mpi_request_get_status##suffix, 4,                                      \
                          test_fortran(Module::module, Which::One, next, words, true))            \
  HETCCL_FORTRAN_FUNCTION(mpi_start##suffix, 2, start_fortran(Module::module, next, a, b))        \
  HETCCL_FORTRAN_FUNCTION(mpi_request_free##suffix, 2, free_fortran(Module::module, next, words)) \
  HETCCL_FORTRAN_TWO(mpi_waitany##suffix, 5, "mpi_testany" #suffix,                               \
                     wait_fortran(Module::module, Which::Any, next, words, &other))               \
  HETCCL_FORTRAN_TWO(mpi_waitsome##suffix, 6, "mpi_testsome" #suffix,                             \
                     wait_fortran(Module::module, Which::Some, next, words, &other))              \
  HETCCL_FORTRAN_TWO(mpi_startall##suffix, 3, "mpi_start" #suffix,                                \
                     start_all_fortran(Module::module, next, other, words))

HETCCL_FORTRAN_REQUESTS(_, Mpi)
HETCCL_FORTRAN_REQUESTS(_f08_, F08)

}  // namespace hetccl::mpi
