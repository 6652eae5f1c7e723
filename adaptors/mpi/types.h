/* hetccl's types and operators in MPI's terms. Only one file may include this, since it holds the
 * operators' state; it must have included mpi.h before. */
#pragma once

#include <stddef.h>

#include "hetccl/adaptor.h"

static MPI_Op max_float, max_double, min_float, min_double;

static MPI_Datatype type_of(hetcclDataType_t type) {
  switch (type) {
    case hetcclInt8:
      return MPI_INT8_T;
    case hetcclInt16:
      return MPI_INT16_T;
    case hetcclUint16:
      return MPI_UINT16_T;
    case hetcclInt32:
      return MPI_INT32_T;
    case hetcclUint32:
      return MPI_UINT32_T;
    case hetcclInt64:
      return MPI_INT64_T;
    case hetcclUint64:
      return MPI_UINT64_T;
    case hetcclFloat32:
      return MPI_FLOAT;
    case hetcclFloat64:
      return MPI_DOUBLE;
    case hetcclFloat16:
    case hetcclBfloat16:
      return MPI_UINT16_T; /* moved only, not reduced */
    case hetcclUint8:
    case hetcclFloat8e4m3:
    case hetcclFloat8e5m2:
      return MPI_UINT8_T;
    default:
      return MPI_DATATYPE_NULL;
  }
}

/* Bytes of an element of `work`. Types that the adaptor does not know are moved as bytes. */
static size_t size_of(const hetcclLibraryWork* work) {
  const size_t end = offsetof(hetcclLibraryWork, element_bytes) + sizeof work->element_bytes;
  const MPI_Datatype type = type_of(work->type);
  int size = 0;
  if (type == MPI_DATATYPE_NULL)
    return work->size >= end && work->element_bytes > 0 ? work->element_bytes : 1;
  MPI_Type_size(type, &size);
  return (size_t)size;
}

/* MPI's own maxima and minima of floats may lose a NaN. */
#define EXTREME(name, Type, better)                                                     \
  static void name(void* in, void* inout, int* n, MPI_Datatype* type) {                 \
    const Type* a = in;                                                                 \
    Type* b = inout;                                                                    \
    (void)type;                                                                         \
    for (int i = 0; i < *n; ++i) b[i] = a[i] better b[i] || a[i] != a[i] ? a[i] : b[i]; \
  }
EXTREME(take_max_float, float, >)
EXTREME(take_max_double, double, >)
EXTREME(take_min_float, float, <)
EXTREME(take_min_double, double, <)

static void make_operators(void) {
  MPI_Op_create(take_max_float, 1, &max_float);
  MPI_Op_create(take_max_double, 1, &max_double);
  MPI_Op_create(take_min_float, 1, &min_float);
  MPI_Op_create(take_min_double, 1, &min_double);
}

static int is_float(hetcclDataType_t type) {
  return type == hetcclFloat32 || type == hetcclFloat64;
}

static MPI_Op op_of(hetcclRedOp_t op, hetcclDataType_t type) {
  switch (op) {
    case hetcclSum:
      return MPI_SUM;
    case hetcclProd:
      return MPI_PROD;
    case hetcclMax:
      return type == hetcclFloat32 ? max_float : type == hetcclFloat64 ? max_double : MPI_MAX;
    case hetcclMin:
      return type == hetcclFloat32 ? min_float : type == hetcclFloat64 ? min_double : MPI_MIN;
    case hetcclBand:
      return MPI_BAND;
    case hetcclBor:
      return MPI_BOR;
    case hetcclBxor:
      return MPI_BXOR;
    default:
      return MPI_OP_NULL;
  }
}

static int reduces(hetcclDataType_t type, hetcclRedOp_t op) {
  if (type_of(type) == MPI_DATATYPE_NULL) return 0;
  if (type == hetcclFloat16 || type == hetcclBfloat16 || type == hetcclFloat8e4m3 ||
      type == hetcclFloat8e5m2)
    return 0;
  if (op == hetcclBand || op == hetcclBor || op == hetcclBxor) return !is_float(type);
  return op == hetcclSum || op == hetcclProd || op == hetcclMax || op == hetcclMin;
}
