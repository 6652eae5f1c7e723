// The MPI that this process has loaded: its maker, and its own functions by their PMPI names.
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

/// Address of a function or variable of the MPI, or null. Also finds an MPI that an interpreter has
/// loaded for one module only. Thread-safe.
void* find_symbol(const char* name);

/// The MPI's own function with a name that this library exports too.
void* find_next(const char* name);

/// The vendors whose memory the MPI says that it accepts. None while it may not be asked: MPICH and
/// Intel MPI end a process that asks before MPI_Init or after MPI_Finalize.
VendorSet ask_device_memory();

/// A function of the MPI, looked up at its first call. Constant-initialised.
class Function {
 public:
  /// The name may be given in parts.
  constexpr explicit Function(const char* name, const char* middle = "", const char* end = "")
      : name_{name, middle, end} {}
  /// Returns null if the MPI has no such function.
  void* address();
  int call(const Words& words) { return invoke(address(), words); }

 private:
  const char* name_[3];
  std::atomic<void*> address_{nullptr};
  std::atomic<bool> missing_{false};
};

/// hetccl's knowledge of a datatype.
struct Type {
  const TypeMeaning* meaning = nullptr;  ///< null: derived, or unknown to hetccl
  int64_t bytes = 0;                     ///< of data in one element, without gaps
};

/// Immutable after `learn`. Each function is collective if the MPI function that it calls is.
class Library {
 public:
  /// Returns null if the process has no MPI. The first call that finds one decides.
  static Library* get();
  /// Fills in the tables. Called once, after MPI_Init: before it some MPIs answer no question.
  void learn();

  const Abi& abi;
  Word comm_world = 0, comm_self = 0, request_null = 0;
  Maker maker = Maker::Other;
  int fortran_integer_bytes = 4;
  VendorSet takes_device_memory = 0;  ///< GPU vendors whose memory the MPI itself accepts

  /// The bits of a word that are a handle.
  [[nodiscard]] Word handle(Word word) const {
    return abi.handle_bytes == 4 ? static_cast<uint32_t>(word) : word;
  }
  [[nodiscard]] Word load_handle(const void* place) const;
  void store_handle(void* place, Word handle) const;

  [[nodiscard]] Type type(Word datatype) const;
  /// Whether `count` elements lie one after the other, without gaps, in the type's order.
  [[nodiscard]] bool is_contiguous(Word datatype) const;
  /// Whether the program made the type and frees it. Types of MPI_Type_create_f90_real are not
  /// derived.
  [[nodiscard]] bool is_derived(Word datatype) const;
  [[nodiscard]] Word duplicate_type(Word datatype) const;
  void free_type(Word datatype) const;
  /// Bytes from one element to the next.
  [[nodiscard]] int64_t extent(Word datatype) const;
  /// Offsets of the first byte of an element's data, and of the byte behind its last.
  struct Bounds {
    int64_t low, high;
  };
  [[nodiscard]] Bounds true_bounds(Word datatype) const;
  [[nodiscard]] const OpMeaning* op(Word op) const;

  [[nodiscard]] bool is_multithreaded() const;
  [[nodiscard]] int size(Word comm) const;
  [[nodiscard]] int rank(Word comm) const;
  [[nodiscard]] bool is_inter(Word comm) const;
  /// Number of ranks to exchange data with: in a communicator between two groups, those of the
  /// other group.
  [[nodiscard]] int peers(Word comm) const;
  /// Writes the ranks in MPI_COMM_WORLD of the ranks of `comm`; `undefined` for a rank that is not
  /// in it.
  void ranks_in_world(Word comm, int n, int* ranks) const;
  [[nodiscard]] Word split(Word comm, int color, int key) const;
  void free_comm(Word* comm) const;

  /// Creates a key for attributes that MPI_Comm_dup does not copy. On deletion the MPI calls `gone`
  /// with the communicator, the key, the value and null.
  using Gone = int (*)(Word comm, int key, void* value, void* extra);
  [[nodiscard]] int create_key(Gone gone) const;
  void set_attribute(Word comm, int key, void* value) const;

  void broadcast(void* bytes, int count, int root, Word comm) const;
  void gather_all(const void* mine, void* all, int bytes, Word comm) const;
  /// Replaces each of `count` ints by the bitwise or over all ranks.
  void combine(int* bits, int count, Word comm) const;
  [[nodiscard]] int combine(int bits, Word comm) const {
    combine(&bits, 1, comm);
    return bits;
  }
  /// Sums doubles over all ranks, to rank 0.
  void sum_on_first(const double* mine, double* sums, int count, Word comm) const;
  void send(const void* bytes, int count, int to, int tag, Word comm) const;
  void receive(void* bytes, int count, int from, int tag, Word comm) const;
  [[nodiscard]] bool probe(int from, int tag, Word comm) const;
  /// Drives the MPI's progress.
  void progress() const;
  /// Tag of hetccl's own messages in MPI_COMM_WORLD.
  [[nodiscard]] int own_tag() const;
  // Predefined handles.
  [[nodiscard]] Word byte() const { return types_[kByteIndex]; }
  [[nodiscard]] Word float32() const { return types_[kFloatIndex]; }
  [[nodiscard]] Word sum() const { return ops_[kSumIndex]; }

  /// Raises `code` as the error of a call on `comm`, through the communicator's error handler.
  int raise(Word comm, int code) const;
  /// Returns an error code with this text, in an error class of hetccl's own.
  [[nodiscard]] int error_code(const std::string& text) const;
  /// Ends the job, after the launcher has had time to show this rank's output.
  [[noreturn]] void abort(int code) const;

 private:
  explicit Library(const Abi& its_abi);
  [[nodiscard]] int combiner_of(Word datatype) const;
  [[nodiscard]] int64_t ask_envelope(Word datatype, int* combiner) const;
  [[nodiscard]] Word part_of(Word datatype) const;
  // Indices in kTypeMeanings and kOpMeanings.
  static constexpr size_t kByteIndex = 3, kIntIndex = 6, kFloatIndex = 12, kDoubleIndex = 13;
  static constexpr size_t kSumIndex = 2, kBorIndex = 5;
  static constexpr size_t kSlots = 256;  // of the hash table of types; a power of two
  struct Slot {
    Word handle = 0;
    Type type;
  };

  int progress_tag_ = 0;  // no message has this tag when MPI_Init returns
  std::array<Word, kTypes> types_{};
  std::array<Word, kOps> ops_{};
  std::array<Slot, kSlots> slots_{};  // indexed by a hash of the handle
};

/// The MPI of this process, which must have one.
const Library& mpi();

/// A datatype that stays valid for a request, even if the program frees it meanwhile.
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
