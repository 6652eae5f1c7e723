/* The types of the C API, which hetccl.h includes: include that.
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
 * rank is rounded to nearest even. The 8-bit ones saturate, as NCCL's do on CUDA: a result beyond
 * the largest finite number, an infinity of e5m2 included, becomes the largest finite number of its
 * sign. A NaN stays one. What is only moved keeps its bits. */
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

/** Values equal ncclRedOp_t's, which has no bitwise operators. Avg divides the sum of integers and
 * truncates toward zero; it scales floats before it adds them, so that a mean of equal numbers is
 * that number, within rounding, though their sum overflows (docs/python.md). Band, Bor and Bxor
 * take integers of any width, elsewhere they are hetcclInvalidArgument. A reduction that the
 * library or device of any rank lacks is hetcclUnsupported on every rank, before it moves anything:
 * where two or more GPUs form a cluster, NCCL lacks bitwise operators and 16-bit integers. Other
 * numbers from hetcclNumOps on are those of hetcclRedOpCreatePreMulSum. */
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

/** Where a scalar lies, and so when it is read. Values equal ncclScalarResidence_t's. */
typedef enum {
  hetcclScalarDevice = 0,       /**< in memory that the device reads; read by each collective */
  hetcclScalarHostImmediate = 1 /**< in host memory; read by the call that it is passed to */
} hetcclScalarResidence_t;

/** A communicator: a number, never a pointer into the library. */
typedef struct hetcclComm* hetcclComm_t;

/** The device's own stream (cudaStream_t, hipStream_t), of which NULL is the default one; for the
 * host device a stream of hetcclHostStreamCreate, or NULL, which means that the collective is
 * complete when the call returns, progressed by the caller. */
typedef void* hetcclStream_t;

/** Where the ranks of one communicator meet: an address and a 32-byte secret. Carry it to them out
 * of band. */
typedef struct {
  char internal[128];
} hetcclUniqueId;

/** Options of one communicator. Start from HETCCL_CONFIG_INITIALIZER; strings are copied. It may
 * grow at its end: `size` tells which fields the caller knows, the others have their defaults. */
typedef struct {
  size_t size;
  unsigned int magic;
  unsigned int version;
  const char* device;  /**< "host"; "cuda:1" a GPU, "cuda" the calling thread's. NULL or "", in
                            init: the GPU that is the calling thread's current one, as
                            hetcclCommInitRank says, else "host"; in a split or shrink: that of
                            `comm` */
  const char* cluster; /**< label that splits clusters further; NULL: HETCCL_CLUSTER */
  const char* host_id; /**< identity of this host; NULL: HETCCL_HOSTID, or probed */
  int64_t timeout_ms;  /**< for one collective; 0: HETCCL_TIMEOUT_MS */
  int blocking; /**< 0: init, split, shrink, finalize return hetcclInProgress at once; default 1 */
  int64_t init_timeout_ms; /**< for all ranks to come; 0: HETCCL_INIT_TIMEOUT_MS */
  int64_t init_limit_ms;   /**< at most this, where init_timeout_ms is longer; 0: no limit */
  const char* wire;        /**< how sums cross between clusters: "int8", "int4:128", "" as they are;
                                NULL: HETCCL_WIRE. Ranks must agree */
  const char* wire_gather; /**< the same of all-gathers; NULL: HETCCL_WIRE_GATHER */
  int wire_inside;         /**< 1 encodes where all ranks are in one cluster, too, 0 does not;
                                -1: HETCCL_WIRE_INSIDE. Ranks must agree */
  const char* name; /**< for people, in the log and in hetcclCommDump: 64 bytes of it; or NULL */
  int min_ctas; /**< least thread blocks of a kernel of NCCL or RCCL, in this rank's cluster; 0: as
                     the library chooses. On other ranks hetcclUnsupported */
  int max_ctas; /**< the most, alike */
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

/** The color of a rank that joins no part of a split. */
#define HETCCL_SPLIT_NOCOLOR (-1)
/** Flags of hetcclCommShrink. Values equal NCCL_SHRINK_DEFAULT and NCCL_SHRINK_ABORT. */
#define HETCCL_SHRINK_DEFAULT 0
#define HETCCL_SHRINK_ABORT 1

#endif /* HETCCL_TYPES_H_ */
