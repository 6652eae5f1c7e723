/* Types of the C API. Include hetccl.h, which includes this file.
 *
 * Licensed under the Apache License, Version 2.0. */
#ifndef HETCCL_TYPES_H_
#define HETCCL_TYPES_H_

#include <stddef.h>
#include <stdint.h>

#define HETCCL_VERSION_MAJOR 0
#define HETCCL_VERSION_MINOR 1
#define HETCCL_VERSION_PATCH 0
/** major * 10000 + minor * 100 + patch. */
#define HETCCL_VERSION_CODE \
  (HETCCL_VERSION_MAJOR * 10000 + HETCCL_VERSION_MINOR * 100 + HETCCL_VERSION_PATCH)

#if defined(__GNUC__)
#define HETCCL_API __attribute__((visibility("default")))
#else
#define HETCCL_API
#endif

/** Values 0 to 7 equal ncclResult_t's. */
typedef enum {
  hetcclSuccess = 0,
  hetcclUnsupported = 1, /**< not available for this device, type or build */
  hetcclSystemError = 2, /**< the operating system or a loaded library refused */
  hetcclInternalError = 3,
  hetcclInvalidArgument = 4,
  hetcclInvalidUsage = 5, /**< calls in the wrong order, or ranks that disagree */
  hetcclRemoteError = 6,  /**< another rank failed, left or cannot be reached */
  hetcclInProgress = 7,
  hetcclTimeout = 8,
  hetcclAborted = 9
} hetcclResult_t;

/** Values equal ncclDataType_t's; NCCL has no 16-bit integers.
 *
 * Floats of 16 and 8 bits are added and multiplied in float32; each partial result that leaves a
 * rank is rounded to nearest even. 8-bit floats saturate, as NCCL's do on CUDA: a result beyond the
 * largest finite number, including an infinity of e5m2, becomes the largest finite number of its
 * sign. A NaN stays a NaN. Calls that only move data keep its bits. */
typedef enum {
  hetcclInt8 = 0,
  hetcclUint8 = 1,
  hetcclInt32 = 2,
  hetcclUint32 = 3,
  hetcclInt64 = 4,
  hetcclUint64 = 5,
  hetcclFloat16 = 6,
  hetcclFloat32 = 7,
  hetcclFloat64 = 8,
  hetcclBfloat16 = 9,
  hetcclFloat8e4m3 = 10, /**< the "fn" form: no infinities, the largest number is 448 */
  hetcclFloat8e5m2 = 11, /**< the largest finite number is 57344 */
  hetcclInt16 = 64,
  hetcclUint16 = 65
} hetcclDataType_t;

/** Values equal ncclRedOp_t's, which has no bitwise operators. Avg of integers divides the sum and
 * truncates toward zero. Avg of floats scales them before it adds them, so that the mean of equal
 * numbers is that number, within rounding, even if their sum overflows (docs/python.md). Band, Bor
 * and Bxor take integers of any width; other types are hetcclInvalidArgument. A reduction that the
 * library or device of any rank lacks is hetcclUnsupported on every rank, before it moves anything:
 * in a cluster of two or more GPUs, NCCL lacks bitwise operators and 16-bit integers. Other numbers
 * from hetcclNumOps on are operators of hetcclRedOpCreatePreMulSum. */
typedef enum {
  hetcclSum = 0,
  hetcclProd = 1,
  hetcclMax = 2,
  hetcclMin = 3,
  hetcclAvg = 4,
  hetcclNumOps = 5,
  hetcclBand = 64, /**< and */
  hetcclBor = 65,  /**< or */
  hetcclBxor = 66, /**< exclusive or */
  hetcclMaxRedOp = 2147483647
} hetcclRedOp_t;

/** The place of a scalar, which decides when it is read. Values equal ncclScalarResidence_t's. */
typedef enum {
  hetcclScalarDevice = 0,       /**< in memory that the device reads; each collective reads it */
  hetcclScalarHostImmediate = 1 /**< in host memory; the call that it is passed to reads it */
} hetcclScalarResidence_t;

/** A communicator: a number, never a pointer into the library. */
typedef struct hetcclComm* hetcclComm_t;

/** A stream of the device (cudaStream_t, hipStream_t); NULL is its default stream. For the host
 * device: a stream of hetcclHostStreamCreate, or NULL. With NULL the caller drives the collective,
 * which is complete when the call returns. */
typedef void* hetcclStream_t;

/** The meeting point of a communicator's ranks: an address and a 32-byte secret. Carry it to the
 * ranks out of band. */
typedef struct {
  char internal[128];
} hetcclUniqueId;

/** Options of one communicator. Start from HETCCL_CONFIG_INITIALIZER. Strings are copied. The
 * struct may grow at its end: `size` tells which fields the caller knows; the others have their
 * defaults. */
typedef struct {
  size_t size;
  unsigned int magic;
  unsigned int version;
  const char* device;  /**< "host"; "cuda:1": a GPU; "cuda": the calling thread's GPU. NULL or ""
                            in init: the calling thread's current GPU, as hetcclCommInitRank
                            describes, else "host"; in a split or shrink: the device of `comm` */
  const char* cluster; /**< label that splits clusters further; NULL: HETCCL_CLUSTER */
  const char* host_id; /**< identity of this host; NULL: HETCCL_HOSTID, else detected */
  int64_t timeout_ms;  /**< of one collective; 0: HETCCL_TIMEOUT_MS */
  int blocking; /**< 0: init, split, shrink, finalize return hetcclInProgress at once; default 1 */
  int64_t init_timeout_ms; /**< for all ranks to join; 0: HETCCL_INIT_TIMEOUT_MS */
  int64_t init_limit_ms;   /**< upper bound for init_timeout_ms; 0: none */
  const char* wire;        /**< encoding of sums between clusters: "int8", "int4:128"; "": none;
                                NULL: HETCCL_WIRE. Ranks must agree */
  const char* wire_gather; /**< the same for all-gathers; NULL: HETCCL_WIRE_GATHER */
  int wire_inside;         /**< 1: encodes even if all ranks are in one cluster; 0: does not; -1:
                                HETCCL_WIRE_INSIDE. Ranks must agree */
  const char* name; /**< for the log and hetcclCommDump, which show up to 64 bytes; or NULL */
  int min_ctas;     /**< fewest thread blocks of a kernel of NCCL or RCCL in this rank's cluster; 0:
                         the library chooses. On ranks without such a library hetcclUnsupported */
  int max_ctas;     /**< most thread blocks, likewise */
} hetcclConfig_t;

#define HETCCL_CONFIG_MAGIC 0x4e7cc100u
#define HETCCL_CONFIG_INITIALIZER \
  {sizeof(hetcclConfig_t),        \
   HETCCL_CONFIG_MAGIC,           \
   HETCCL_VERSION_CODE,           \
   NULL,                          \
   NULL,                          \
   NULL,                          \
   0,                             \
   1,                             \
   0,                             \
   0,                             \
   NULL,                          \
   NULL,                          \
   -1,                            \
   NULL,                          \
   0,                             \
   0}

/** The color of a rank that joins no new communicator. */
#define HETCCL_SPLIT_NOCOLOR (-1)
/** Flags of hetcclCommShrink. Values equal NCCL_SHRINK_DEFAULT and NCCL_SHRINK_ABORT. */
#define HETCCL_SHRINK_DEFAULT 0
#define HETCCL_SHRINK_ABORT 1

#endif /* HETCCL_TYPES_H_ */
