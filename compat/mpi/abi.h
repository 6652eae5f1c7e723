// The binary interfaces of the MPIs: the values of their handles and constants. Three interfaces
// cover all MPIs: MPICH's, which Intel MPI, MVAPICH and Cray MPICH share; Open MPI's (4 and 5); and
// MPI 5's own. The values are those of the MPIs' headers; tests/python/test_mpi.py compares them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "hetccl/hetccl.h"
#include "mpi/word.h"

namespace hetccl::mpi {

enum class TypeKind : uint8_t { Integer, Float, Complex, Bits };

/// Meaning of a predefined datatype: hetccl reduces one of it as `elements` elements of `type`.
struct TypeMeaning {
  const char* name;
  hetcclDataType_t type;
  int elements;
  TypeKind kind;
};

inline constexpr size_t kTypes = 42;
inline constexpr size_t kOps = 7;
extern const std::array<TypeMeaning, kTypes> kTypeMeanings;
struct OpMeaning {
  const char* name;
  hetcclRedOp_t op;
};
extern const std::array<OpMeaning, kOps> kOpMeanings;

/// A predefined handle: a number, or, if `symbol` is set, the address of that symbol.
struct Constant {
  Word value = 0;
  const char* symbol = nullptr;
};

struct Abi {
  std::string_view name;  ///< "mpich", "openmpi" or "standard"
  size_t handle_bytes;    ///< size of a handle in an array of handles
  size_t status_bytes, status_source, status_tag, status_error;  ///< size of MPI_Status; offsets
  Word in_place, status_ignore;
  Constant comm_world, comm_self, request_null;
  std::array<Constant, kTypes> types;
  std::array<Constant, kOps> ops;
  int undefined, any_source, any_tag, proc_null, root, tag_ub;
  int combiner_named, combiner_dup, combiner_contiguous;
  int err_other, err_count, err_in_status, thread_multiple;
};

/// The maker of an MPI; several makers share an interface.
enum class Maker : uint8_t { Mpich, Intel, OpenMpi, Other };
inline constexpr std::array<std::string_view, 3> kMakers = {"mpich", "intel", "openmpi"};

extern const Abi kMpichAbi, kOpenMpiAbi, kStandardAbi;

}  // namespace hetccl::mpi
