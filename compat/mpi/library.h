// The MPI that this process has loaded: whose it is, and its own functions, by their PMPI names.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "mpi/abi.h"
#include "mpi/gpu.h"
#include "mpi/word.h"

namespace hetccl::mpi {

/// The address of a function or variable of the MPI, or null: programs may look for it, an
/// interpreter may have loaded the MPI for a module of its own. Thread-safe.
void* find_symbol(const char* name);

/// The MPI's own function of a name that this library exports, too.
void* find_next(const char* name);

/// The vendors whose memory the MPI says that it takes. None where it may not be asked: MPICH and
/// Intel MPI end a process that asks before MPI_Init or after MPI_Finalize.
VendorSet ask_device_memory();

/// One function of the MPI, looked up by its first call. Constant-initialised.
class Function {
 public:
  /// Of this name, which may be given in parts.
  constexpr explicit Function(const char* name, const char* middle = "", const char* end = "")
      : name_{name, middle, end} {}
  /// Null where the MPI has none.
  void* address();
  int call(const Words& words) { return invoke(address(), words); }

 private:
  const char* name_[3];
  std::atomic<void*> address_{nullptr};
  std::atomic<bool> missing_{false};
};

/// What hetccl knows of a datatype.
struct Type {
  const TypeMeaning* meaning = nullptr;  ///< null: not predefined, or none that hetccl knows
  int64_t bytes = 0;                     ///< of its data
};

/// Immutable after `learn`. Every function is collective, or not, as the MPI function that it calls
/// is.
class Library {
 public:
  /// Null where the process has no MPI. The first call that finds one decides.
  static Library* get();
  /// Once, after MPI_Init: before it some MPIs answer no question.
  void learn();

  const Abi& abi;
  Word comm_world = 0, comm_self = 0, request_null = 0;
  Maker maker = Maker::Other;
  int fortran_integer_bytes = 4;
  VendorSet takes_device_memory = 0;  ///< of GPUs whose memory the MPI itself takes

  /// The part of a word that is a handle.
  [[nodiscard]] Word handle(Word word) const {
    return abi.handle_bytes == 4 ? static_cast<uint32_t>(word) : word;
  }
  [[nodiscard]] Word load_handle(const void* place) const;
  void store_handle(void* place, Word handle) const;

  [[nodiscard]] Type type(Word datatype) const;
  /// Whether `count` elements of it lie one after the other, without gaps, in the order of the
  /// type.
  [[nodiscard]] bool is_contiguous(Word datatype) const;
  /// Made by the program, which frees it. (Those of MPI_Type_create_f90_real are not.)
  [[nodiscard]] bool is_derived(Word datatype) const;
  [[nodiscard]] Word duplicate_type(Word datatype) const;
  void free_type(Word datatype) const;
  /// From one element to the next, in bytes.
  [[nodiscard]] int64_t extent(Word datatype) const;
  /// The first byte of an element's data, and the one behind its last.
  struct Bounds {
    int64_t low, high;
  };
  [[nodiscard]] Bounds true_bounds(Word datatype) const;
  [[nodiscard]] const OpMeaning* op(Word op) const;

  [[nodiscard]] bool is_multithreaded() const;
  [[nodiscard]] int size(Word comm) const;
  [[nodiscard]] int rank(Word comm) const;
  [[nodiscard]] bool is_inter(Word comm) const;
  /// How many ranks data goes to and comes from: between two groups, those of the other one.
  [[nodiscard]] int peers(Word comm) const;
  /// The ranks of `comm` in MPI_COMM_WORLD; `undefined` where one is not there.
  void ranks_in_world(Word comm, int n, int* ranks) const;
  [[nodiscard]] Word split(Word comm, int color, int key) const;
  void free_comm(Word* comm) const;

  /// A key for attributes that MPI_Comm_dup does not copy. MPI calls `gone` with the communicator,
  /// the key, the value and null when it deletes one.
  using Gone = int (*)(Word comm, int key, void* value, void* extra);
  [[nodiscard]] int create_key(Gone gone) const;
  void set_attribute(Word comm, int key, void* value) const;

  void broadcast(void* bytes, int count, int root, Word comm) const;
  void gather_all(const void* mine, void* all, int bytes, Word comm) const;
  /// The bitwise or of all ranks' words, one by one.
  void combine(int* bits, int count, Word comm) const;
  [[nodiscard]] int combine(int bits, Word comm) const {
    combine(&bits, 1, comm);
    return bits;
  }
  /// Sums of doubles, to rank 0.
  void sum_on_first(const double* mine, double* sums, int count, Word comm) const;
  void send(const void* bytes, int count, int to, int tag, Word comm) const;
  void receive(void* bytes, int count, int from, int tag, Word comm) const;
  [[nodiscard]] bool probe(int from, int tag, Word comm) const;
  /// Lets the MPI move what it has under way.
  void progress() const;
  /// For messages of hetccl's own in MPI_COMM_WORLD.
  [[nodiscard]] int own_tag() const;
  // Predefined handles.
  [[nodiscard]] Word byte() const { return types_[kByteIndex]; }
  [[nodiscard]] Word float32() const { return types_[kFloatIndex]; }
  [[nodiscard]] Word sum() const { return ops_[kSumIndex]; }

  /// Makes `code` the error of a call on `comm`, as the communicator's error handler would have it.
  int raise(Word comm, int code) const;
  /// An error code with this text, of a class of hetccl's own.
  [[nodiscard]] int error_code(const std::string& text) const;
  /// Ends the job. What this rank has logged is shown first.
  [[noreturn]] void abort(int code) const;

 private:
  explicit Library(const Abi& its_abi);
  [[nodiscard]] int combiner_of(Word datatype) const;
  [[nodiscard]] int64_t ask_envelope(Word datatype, int* combiner) const;
  [[nodiscard]] Word part_of(Word datatype) const;
  // In kTypeMeanings and kOpMeanings.
  static constexpr size_t kByteIndex = 3, kIntIndex = 6, kFloatIndex = 12, kDoubleIndex = 13;
  static constexpr size_t kSumIndex = 2, kBorIndex = 5;
  static constexpr size_t kSlots = 256;  // of the table of types, a power of two
  struct Slot {
    Word handle = 0;
    Type type;
  };

  int progress_tag_ = 0;  // no message has it when MPI_Init is over
  std::array<Word, kTypes> types_{};
  std::array<Word, kOps> ops_{};
  std::array<Slot, kSlots> slots_{};  // by a hash of the handle
};

/// A library that is there.
const Library& mpi();

/// A datatype that stays where the program frees it while a request uses it.
class KeptType {
 public:
  KeptType(Word type, const Library& library);
  ~KeptType();
  KeptType(const KeptType&) = delete;
  KeptType& operator=(const KeptType&) = delete;
  [[nodiscard]] Word get() const { return type_; }

 private:
  const Library& library_;
  const bool derived_;
  Word type_;
};

}  // namespace hetccl::mpi
