#include "mpi/abi.h"

#include <type_traits>

namespace hetccl::mpi {
namespace {

constexpr bool kSignedChar = std::is_signed_v<char>;

template <size_t N>
constexpr std::array<Constant, N> values(const Word (&list)[N]) {
  std::array<Constant, N> constants{};
  for (size_t i = 0; i < N; ++i) constants[i].value = list[i];
  return constants;
}

template <size_t N>
constexpr std::array<Constant, N> symbols(const char* const (&list)[N]) {
  std::array<Constant, N> constants{};
  for (size_t i = 0; i < N; ++i) constants[i].symbol = list[i];
  return constants;
}

}  // namespace

// The order of `Abi::types`.
const std::array<TypeMeaning, kTypes> kTypeMeanings = {{
    // Not an integer type by the standard, but every MPI adds it as one.
    {"MPI_CHAR", kSignedChar ? hetcclInt8 : hetcclUint8, 1, TypeKind::Integer},
    {"MPI_SIGNED_CHAR", hetcclInt8, 1, TypeKind::Integer},
    {"MPI_UNSIGNED_CHAR", hetcclUint8, 1, TypeKind::Integer},
    {"MPI_BYTE", hetcclUint8, 1, TypeKind::Bits},
    {"MPI_SHORT", hetcclInt16, 1, TypeKind::Integer},
    {"MPI_UNSIGNED_SHORT", hetcclUint16, 1, TypeKind::Integer},
    {"MPI_INT", hetcclInt32, 1, TypeKind::Integer},
    {"MPI_UNSIGNED", hetcclUint32, 1, TypeKind::Integer},
    {"MPI_LONG", hetcclInt64, 1, TypeKind::Integer},
    {"MPI_UNSIGNED_LONG", hetcclUint64, 1, TypeKind::Integer},
    {"MPI_LONG_LONG", hetcclInt64, 1, TypeKind::Integer},
    {"MPI_UNSIGNED_LONG_LONG", hetcclUint64, 1, TypeKind::Integer},
    {"MPI_FLOAT", hetcclFloat32, 1, TypeKind::Float},
    {"MPI_DOUBLE", hetcclFloat64, 1, TypeKind::Float},
    {"MPI_INT8_T", hetcclInt8, 1, TypeKind::Integer},
    {"MPI_UINT8_T", hetcclUint8, 1, TypeKind::Integer},
    {"MPI_INT16_T", hetcclInt16, 1, TypeKind::Integer},
    {"MPI_UINT16_T", hetcclUint16, 1, TypeKind::Integer},
    {"MPI_INT32_T", hetcclInt32, 1, TypeKind::Integer},
    {"MPI_UINT32_T", hetcclUint32, 1, TypeKind::Integer},
    {"MPI_INT64_T", hetcclInt64, 1, TypeKind::Integer},
    {"MPI_UINT64_T", hetcclUint64, 1, TypeKind::Integer},
    {"MPI_AINT", hetcclInt64, 1, TypeKind::Integer},
    {"MPI_COUNT", hetcclInt64, 1, TypeKind::Integer},
    {"MPI_OFFSET", hetcclInt64, 1, TypeKind::Integer},
    {"MPI_C_FLOAT_COMPLEX", hetcclFloat32, 2, TypeKind::Complex},
    {"MPI_C_DOUBLE_COMPLEX", hetcclFloat64, 2, TypeKind::Complex},
    {"MPI_CXX_FLOAT_COMPLEX", hetcclFloat32, 2, TypeKind::Complex},
    {"MPI_CXX_DOUBLE_COMPLEX", hetcclFloat64, 2, TypeKind::Complex},
    {"MPI_INTEGER", hetcclInt32, 1, TypeKind::Integer},
    {"MPI_REAL", hetcclFloat32, 1, TypeKind::Float},
    {"MPI_DOUBLE_PRECISION", hetcclFloat64, 1, TypeKind::Float},
    {"MPI_COMPLEX", hetcclFloat32, 2, TypeKind::Complex},
    {"MPI_DOUBLE_COMPLEX", hetcclFloat64, 2, TypeKind::Complex},
    {"MPI_INTEGER1", hetcclInt8, 1, TypeKind::Integer},
    {"MPI_INTEGER2", hetcclInt16, 1, TypeKind::Integer},
    {"MPI_INTEGER4", hetcclInt32, 1, TypeKind::Integer},
    {"MPI_INTEGER8", hetcclInt64, 1, TypeKind::Integer},
    {"MPI_REAL4", hetcclFloat32, 1, TypeKind::Float},
    {"MPI_REAL8", hetcclFloat64, 1, TypeKind::Float},
    {"MPI_COMPLEX8", hetcclFloat32, 2, TypeKind::Complex},
    {"MPI_COMPLEX16", hetcclFloat64, 2, TypeKind::Complex},
}};

// The order of `Abi::ops`.
const std::array<OpMeaning, kOps> kOpMeanings = {{
    {"MPI_MAX", hetcclMax},
    {"MPI_MIN", hetcclMin},
    {"MPI_SUM", hetcclSum},
    {"MPI_PROD", hetcclProd},
    {"MPI_BAND", hetcclBand},
    {"MPI_BOR", hetcclBor},
    {"MPI_BXOR", hetcclBxor},
}};

constinit const Abi kMpichAbi = {
    .name = "mpich",
    .handle_bytes = 4,
    .status_bytes = 20,
    .status_source = 8,
    .status_tag = 12,
    .status_error = 16,
    .in_place = ~Word{0},
    .status_ignore = 1,
    .comm_world = {0x44000000},
    .comm_self = {0x44000001},
    .request_null = {0x2c000000},
    .types = values({
        0x4c000101, 0x4c000118, 0x4c000102, 0x4c00010d, 0x4c000203, 0x4c000204, 0x4c000405,
        0x4c000406, 0x4c000807, 0x4c000808, 0x4c000809, 0x4c000819, 0x4c00040a, 0x4c00080b,
        0x4c000137, 0x4c00013b, 0x4c000238, 0x4c00023c, 0x4c000439, 0x4c00043d, 0x4c00083a,
        0x4c00083e, 0x4c000843, 0x4c000845, 0x4c000844, 0x4c000840, 0x4c001041, 0x4c000834,
        0x4c001035, 0x4c00041b, 0x4c00041c, 0x4c00081f, 0x4c00081e, 0x4c001022, 0x4c00012d,
        0x4c00022f, 0x4c000430, 0x4c000831, 0x4c000427, 0x4c000829, 0x4c000828, 0x4c00102a,
    }),
    .ops = values({
        0x58000001,
        0x58000002,
        0x58000003,
        0x58000004,
        0x58000006,
        0x58000008,
        0x5800000a,
    }),
    .undefined = -32766,
    .any_source = -2,
    .any_tag = -1,
    .proc_null = -1,
    .root = -3,
    .tag_ub = 0x64400001,
    .combiner_named = 1,
    .combiner_dup = 2,
    .combiner_contiguous = 3,
    .err_other = 15,
    .err_count = 2,
    .err_in_status = 17,
    .thread_multiple = 3,
};

constinit const Abi kOpenMpiAbi = {
    .name = "openmpi",
    .handle_bytes = 8,
    .status_bytes = 24,
    .status_source = 0,
    .status_tag = 4,
    .status_error = 8,
    .in_place = 1,
    .status_ignore = 0,
    .comm_world = {0, "ompi_mpi_comm_world"},
    .comm_self = {0, "ompi_mpi_comm_self"},
    .request_null = {0, "ompi_request_null"},
    .types = symbols({
        "ompi_mpi_char",
        "ompi_mpi_signed_char",
        "ompi_mpi_unsigned_char",
        "ompi_mpi_byte",
        "ompi_mpi_short",
        "ompi_mpi_unsigned_short",
        "ompi_mpi_int",
        "ompi_mpi_unsigned",
        "ompi_mpi_long",
        "ompi_mpi_unsigned_long",
        "ompi_mpi_long_long_int",
        "ompi_mpi_unsigned_long_long",
        "ompi_mpi_float",
        "ompi_mpi_double",
        "ompi_mpi_int8_t",
        "ompi_mpi_uint8_t",
        "ompi_mpi_int16_t",
        "ompi_mpi_uint16_t",
        "ompi_mpi_int32_t",
        "ompi_mpi_uint32_t",
        "ompi_mpi_int64_t",
        "ompi_mpi_uint64_t",
        "ompi_mpi_aint",
        "ompi_mpi_count",
        "ompi_mpi_offset",
        "ompi_mpi_c_float_complex",
        "ompi_mpi_c_double_complex",
        "ompi_mpi_cxx_cplex",
        "ompi_mpi_cxx_dblcplex",
        "ompi_mpi_integer",
        "ompi_mpi_real",
        "ompi_mpi_dblprec",
        "ompi_mpi_cplex",
        "ompi_mpi_dblcplex",
        "ompi_mpi_integer1",
        "ompi_mpi_integer2",
        "ompi_mpi_integer4",
        "ompi_mpi_integer8",
        "ompi_mpi_real4",
        "ompi_mpi_real8",
        "ompi_mpi_complex8",
        "ompi_mpi_complex16",
    }),
    .ops = symbols({
        "ompi_mpi_op_max",
        "ompi_mpi_op_min",
        "ompi_mpi_op_sum",
        "ompi_mpi_op_prod",
        "ompi_mpi_op_band",
        "ompi_mpi_op_bor",
        "ompi_mpi_op_bxor",
    }),
    .undefined = -32766,
    .any_source = -1,
    .any_tag = -1,
    .proc_null = -2,
    .root = -4,
    .tag_ub = 0,
    .combiner_named = 0,
    .combiner_dup = 1,
    .combiner_contiguous = 2,
    .err_other = 16,
    .err_count = 2,
    .err_in_status = 18,
    .thread_multiple = 3,
};

constinit const Abi kStandardAbi = {
    .name = "standard",
    .handle_bytes = 8,
    .status_bytes = 32,
    .status_source = 0,
    .status_tag = 4,
    .status_error = 8,
    .in_place = 1,
    .status_ignore = 0,
    .comm_world = {0x101},
    .comm_self = {0x102},
    .request_null = {0x180},
    .types = values({
        0x243, 0x244, 0x245, 0x247, 0x208, 0x20c, 0x209, 0x20d, 0x20a, 0x20e, 0x20b,
        0x20f, 0x210, 0x214, 0x240, 0x241, 0x248, 0x249, 0x250, 0x251, 0x258, 0x259,
        0x201, 0x202, 0x203, 0x212, 0x216, 0x213, 0x217, 0x219, 0x21a, 0x21c, 0x21b,
        0x21d, 0x2c1, 0x2c9, 0x2d1, 0x2d9, 0x2d2, 0x2da, 0x2db, 0x2e3,
    }),
    .ops = values({
        0x23,
        0x22,
        0x21,
        0x24,
        0x28,
        0x29,
        0x2a,
    }),
    .undefined = -32766,
    .any_source = -1,
    .any_tag = -2,
    .proc_null = -3,
    .root = -4,
    .tag_ub = 0x1f5,
    .combiner_named = 0x65,
    .combiner_dup = 0x66,
    .combiner_contiguous = 0x67,
    .err_other = 16,
    .err_count = 2,
    .err_in_status = 19,
    .thread_multiple = 0x1000,
};

}  // namespace hetccl::mpi
