/* hetccl: one communicator over unlike accelerators. The C API, shaped as NCCL's.
 *
 * Unless noted, functions are thread-safe, communicators are not shared between threads without the
 * caller's own order, and every rank issues the same collectives in the same order on one
 * communicator.
 *
 * Licensed under the Apache License, Version 2.0. */
#ifndef HETCCL_HETCCL_H_
#define HETCCL_HETCCL_H_

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

#ifdef __cplusplus
extern "C" {
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
  const char* device;  /**< "host"; "cuda:1" a GPU, "cuda" the calling thread's; NULL: "host" */
  const char* cluster; /**< label that splits clusters further; NULL: HETCCL_CLUSTER */
  const char* host_id; /**< identity of this host; NULL: HETCCL_HOSTID, or probed */
  int64_t timeout_ms;  /**< for one collective; 0: HETCCL_TIMEOUT_MS */
  int blocking; /**< 0: init, split and finalize return hetcclInProgress at once; default 1 */
  int64_t init_timeout_ms; /**< for all ranks to come; 0: HETCCL_INIT_TIMEOUT_MS */
  int64_t init_limit_ms;   /**< at most this, where init_timeout_ms is longer; 0: no limit */
  const char* wire;        /**< how sums cross between clusters: "int8", "int4:128", "" as they are;
                                NULL: HETCCL_WIRE. Ranks must agree */
  const char* wire_gather; /**< the same of all-gathers; NULL: HETCCL_WIRE_GATHER */
  int wire_inside;         /**< 1 encodes where all ranks are in one cluster, too, 0 does not;
                                -1: HETCCL_WIRE_INSIDE. Ranks must agree */
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
   -1}

/** The color of a rank that joins no part of a split. */
#define HETCCL_SPLIT_NOCOLOR (-1)

/** HETCCL_VERSION_CODE of the library that is loaded. */
HETCCL_API hetcclResult_t hetcclGetVersion(int* version);
/** A static text for a result. Never NULL. */
HETCCL_API const char* hetcclGetErrorString(hetcclResult_t result);
/** What went wrong last, in full: on `comm`, or with NULL in this thread's last failed call. Valid
 * until this thread's next call of hetccl. */
HETCCL_API const char* hetcclGetLastError(hetcclComm_t comm);

/** Makes an id; the calling process runs the rendezvous until every rank that joined has left. */
HETCCL_API hetcclResult_t hetcclGetUniqueId(hetcclUniqueId* id);
/** Joins `rank` of `nranks`. Collective; blocks until all ranks have come or HETCCL_INIT_TIMEOUT_MS
 * has passed. */
HETCCL_API hetcclResult_t hetcclCommInitRank(hetcclComm_t* comm, int nranks, hetcclUniqueId id,
                                             int rank);
/** The same with options; `config` may be NULL. With `config->blocking` 0: hetcclInProgress and a
 * handle, at once. Until hetcclCommGetAsyncError no longer gives hetcclInProgress, only that
 * function, hetcclGetLastError, hetcclCommSetTimeout, hetcclCommDestroy and hetcclCommAbort take
 * the handle; the last two end the attempt. A handle whose attempt failed is still to be destroyed.
 */
HETCCL_API hetcclResult_t hetcclCommInitRankConfig(hetcclComm_t* comm, int nranks,
                                                   hetcclUniqueId id, int rank,
                                                   const hetcclConfig_t* config);
/** Collective over `comm`: its ranks of equal `color` (0 or more) form a new communicator, ordered
 * by `key`, then by their rank in `comm`. With HETCCL_SPLIT_NOCOLOR `*newcomm` is NULL. `config`
 * NULL takes `comm`'s options; `blocking` is as in hetcclCommInitRankConfig, but a rank without a
 * color gets hetcclSuccess. A color that is none is hetcclInvalidArgument on every rank. */
HETCCL_API hetcclResult_t hetcclCommSplit(hetcclComm_t comm, int color, int key,
                                          hetcclComm_t* newcomm, const hetcclConfig_t* config);
/** Waits for enqueued work (within its deadlines) and says goodbye to the other ranks: nothing can
 * be called any more, and hetcclCommDestroy only frees. On a communicator whose config is not
 * blocking: hetcclInProgress at once, until hetcclCommGetAsyncError gives something else. */
HETCCL_API hetcclResult_t hetcclCommFinalize(hetcclComm_t comm);
/** Waits for enqueued work (within its deadlines) and frees the communicator. */
HETCCL_API hetcclResult_t hetcclCommDestroy(hetcclComm_t comm);
/** Ends enqueued work on every rank with hetcclAborted, and frees the communicator. May be called
 * from any thread while another waits in a collective of `comm`; that call returns hetcclAborted.
 */
HETCCL_API hetcclResult_t hetcclCommAbort(hetcclComm_t comm);
/** For the end of the process: every communicator whose work is complete, within `grace_ms` in all,
 * says goodbye to its peers; the others are aborted. No memory of the user is touched afterwards,
 * and handles are good for nothing but to be destroyed. exit() does the same, with two seconds'
 * grace: call it where memory is freed before that, as an interpreter does. */
HETCCL_API hetcclResult_t hetcclShutdown(int64_t grace_ms);
/** The first failure of the communicator, hetcclInProgress while it is set up or finalized in the
 * background, or hetcclSuccess. */
HETCCL_API hetcclResult_t hetcclCommGetAsyncError(hetcclComm_t comm, hetcclResult_t* async_error);
/** The number of ranks. */
HETCCL_API hetcclResult_t hetcclCommCount(hetcclComm_t comm, int* count);
/** This process's rank. */
HETCCL_API hetcclResult_t hetcclCommUserRank(hetcclComm_t comm, int* rank);
/** The deadline of collectives and messages called from now on, in milliseconds. */
HETCCL_API hetcclResult_t hetcclCommSetTimeout(hetcclComm_t comm, int64_t timeout_ms);

/** recvbuff[i] = op over all ranks of sendbuff[i]; `count` elements each. In place: sendbuff ==
 * recvbuff. */
HETCCL_API hetcclResult_t hetcclAllReduce(const void* sendbuff, void* recvbuff, size_t count,
                                          hetcclDataType_t datatype, hetcclRedOp_t op,
                                          hetcclComm_t comm, hetcclStream_t stream);
/** recvbuff[i] = op over all ranks of sendbuff[rank*recvcount + i]. In place: recvbuff == sendbuff
 * + rank*recvcount. */
HETCCL_API hetcclResult_t hetcclReduceScatter(const void* sendbuff, void* recvbuff,
                                              size_t recvcount, hetcclDataType_t datatype,
                                              hetcclRedOp_t op, hetcclComm_t comm,
                                              hetcclStream_t stream);
/** As hetcclAllReduce, with error feedback: what the codes of an encoded call lose is part of the
 * next call. `residual` is the caller's memory for one tensor: as many elements of the same type as
 * sendbuff, on this rank's device, zeros before the tensor's first call. Each call adds it to what
 * this rank encodes, and puts there what the codes lack: zeros of a block with NaN, infinities or
 * numbers from 2^127 on (float16: 2^15). Of elements that this rank does not encode, and in calls
 * that are not encoded, it stays as it is. It overlaps no buffer, and is used as the buffers are,
 * in the stream's order. After a failed call fill it with zeros. Ranks that have none call
 * hetcclAllReduce. hetcclInvalidArgument if it is NULL and count is not 0. */
HETCCL_API hetcclResult_t hetcclAllReduceWithResidual(const void* sendbuff, void* recvbuff,
                                                      void* residual, size_t count,
                                                      hetcclDataType_t datatype, hetcclRedOp_t op,
                                                      hetcclComm_t comm, hetcclStream_t stream);
/** The same of hetcclReduceScatter: `residual` has the number of ranks * recvcount elements. */
HETCCL_API hetcclResult_t hetcclReduceScatterWithResidual(const void* sendbuff, void* recvbuff,
                                                          void* residual, size_t recvcount,
                                                          hetcclDataType_t datatype,
                                                          hetcclRedOp_t op, hetcclComm_t comm,
                                                          hetcclStream_t stream);
/** recvbuff[r*sendcount + i] = rank r's sendbuff[i]. In place: sendbuff == recvbuff +
 * rank*sendcount. */
HETCCL_API hetcclResult_t hetcclAllGather(const void* sendbuff, void* recvbuff, size_t sendcount,
                                          hetcclDataType_t datatype, hetcclComm_t comm,
                                          hetcclStream_t stream);
/** recvbuff[i] = root's sendbuff[i]; sendbuff is read on the root alone. In place: sendbuff ==
 * recvbuff. */
HETCCL_API hetcclResult_t hetcclBroadcast(const void* sendbuff, void* recvbuff, size_t count,
                                          hetcclDataType_t datatype, int root, hetcclComm_t comm,
                                          hetcclStream_t stream);
/** recvbuff[i] = op over all ranks of sendbuff[i], on the root alone: elsewhere recvbuff is not
 * used and may be NULL. In place: sendbuff == recvbuff on the root. */
HETCCL_API hetcclResult_t hetcclReduce(const void* sendbuff, void* recvbuff, size_t count,
                                       hetcclDataType_t datatype, hetcclRedOp_t op, int root,
                                       hetcclComm_t comm, hetcclStream_t stream);
/** On the root: recvbuff[r*count + i] = rank r's sendbuff[i]; elsewhere recvbuff is not used and
 * may be NULL. In place: sendbuff == recvbuff + rank*count on the root. */
HETCCL_API hetcclResult_t hetcclGather(const void* sendbuff, void* recvbuff, size_t count,
                                       hetcclDataType_t datatype, int root, hetcclComm_t comm,
                                       hetcclStream_t stream);
/** recvbuff[i] = root's sendbuff[rank*count + i]; sendbuff is read on the root alone. In place:
 * recvbuff == sendbuff + rank*count on the root. */
HETCCL_API hetcclResult_t hetcclScatter(const void* sendbuff, void* recvbuff, size_t count,
                                        hetcclDataType_t datatype, int root, hetcclComm_t comm,
                                        hetcclStream_t stream);
/** recvbuff[r*count + i] = rank r's sendbuff[rank*count + i]. Never in place. */
HETCCL_API hetcclResult_t hetcclAllToAll(const void* sendbuff, void* recvbuff, size_t count,
                                         hetcclDataType_t datatype, hetcclComm_t comm,
                                         hetcclStream_t stream);

/* The same with blocks of any lengths, 0 included. `counts` has one entry for each rank, in
 * elements, `displs` where each block begins in its buffer, in elements; NULL: one after the other.
 * Both are read before the call returns, and may differ in every call: nothing is planned anew. */

/** As hetcclAllGather: rank r sends recvcounts[r] elements. Ranks pass equal recvcounts. In place:
 * sendbuff == recvbuff + displs[rank]. */
HETCCL_API hetcclResult_t hetcclAllGatherV(const void* sendbuff, void* recvbuff,
                                           const size_t* recvcounts, const size_t* displs,
                                           hetcclDataType_t datatype, hetcclComm_t comm,
                                           hetcclStream_t stream);
/** As hetcclReduceScatter: rank r gets sendcounts[r] elements. Ranks pass equal sendcounts. In
 * place: recvbuff == sendbuff + displs[rank]. */
HETCCL_API hetcclResult_t hetcclReduceScatterV(const void* sendbuff, const size_t* sendcounts,
                                               const size_t* displs, void* recvbuff,
                                               hetcclDataType_t datatype, hetcclRedOp_t op,
                                               hetcclComm_t comm, hetcclStream_t stream);
/** As hetcclGather: this rank sends `sendcount` elements; recvcounts and displs are read on the
 * root alone. Ranks whose counts differ get an error that names both. */
HETCCL_API hetcclResult_t hetcclGatherV(const void* sendbuff, size_t sendcount, void* recvbuff,
                                        const size_t* recvcounts, const size_t* displs,
                                        hetcclDataType_t datatype, int root, hetcclComm_t comm,
                                        hetcclStream_t stream);
/** As hetcclScatter: this rank gets `recvcount` elements; sendcounts and displs are read on the
 * root alone. */
HETCCL_API hetcclResult_t hetcclScatterV(const void* sendbuff, const size_t* sendcounts,
                                         const size_t* displs, void* recvbuff, size_t recvcount,
                                         hetcclDataType_t datatype, int root, hetcclComm_t comm,
                                         hetcclStream_t stream);
/** As hetcclAllToAll: sendcounts[r] elements go to rank r, recvcounts[r] come from it. */
HETCCL_API hetcclResult_t hetcclAllToAllV(const void* sendbuff, const size_t* sendcounts,
                                          const size_t* sdispls, void* recvbuff,
                                          const size_t* recvcounts, const size_t* rdispls,
                                          hetcclDataType_t datatype, hetcclComm_t comm,
                                          hetcclStream_t stream);

/** No rank passes before every rank has come. */
HETCCL_API hetcclResult_t hetcclBarrier(hetcclComm_t comm, hetcclStream_t stream);

/** Sends `count` elements to `peer`, which calls hetcclRecv with the same count and type. Messages
 * from one rank to another meet receives in the order of the calls; that order is their own, apart
 * from the collectives' and from that of all other pairs and of the other direction. Who has not
 * called when the deadline passes is named. To itself a rank sends within a group. */
HETCCL_API hetcclResult_t hetcclSend(const void* sendbuff, size_t count, hetcclDataType_t datatype,
                                     int peer, hetcclComm_t comm, hetcclStream_t stream);
/** Receives what `peer` sends. */
HETCCL_API hetcclResult_t hetcclRecv(void* recvbuff, size_t count, hetcclDataType_t datatype,
                                     int peer, hetcclComm_t comm, hetcclStream_t stream);
/** The same with a tag, which only guards the order: ends that meet with other tags, or one of them
 * without (0), are an error on both ranks. */
HETCCL_API hetcclResult_t hetcclSendTag(const void* sendbuff, size_t count,
                                        hetcclDataType_t datatype, int peer, uint32_t tag,
                                        hetcclComm_t comm, hetcclStream_t stream);
/** Receives what `peer` sends under the same tag. */
HETCCL_API hetcclResult_t hetcclRecvTag(void* recvbuff, size_t count, hetcclDataType_t datatype,
                                        int peer, uint32_t tag, hetcclComm_t comm,
                                        hetcclStream_t stream);
/** Receives the next message of `tag` (0: sent without one) from whichever rank has one first, and
 * writes the rank into `*source`, which may be NULL, before the call is complete: until then it
 * must live. Of two receives that can take a message, the one called first does; so a receive that
 * names a rank may wait for one from any rank that was called before it. A message of another tag
 * is left to other receives. Ranks that send all the time hold up no other. A receive from any
 * rank takes no message of this rank to itself. Ranks of the host, in a communicator of at most 256
 * ranks; elsewhere hetcclUnsupported. Its first call makes channels to all ranks, each of which
 * has a thread waiting until that rank's first message. */
HETCCL_API hetcclResult_t hetcclRecvAny(void* recvbuff, size_t count, hetcclDataType_t datatype,
                                        uint32_t tag, int* source, hetcclComm_t comm,
                                        hetcclStream_t stream);
/** Begins a group: this thread's sends, receives and collectives, on any communicators and streams,
 * are only noted until the hetcclGroupEnd that belongs to it. Groups may nest. What makes or ends a
 * communicator cannot be part of one. */
HETCCL_API hetcclResult_t hetcclGroupStart(void);
/** Makes the calls of the outermost group: of each communicator and stream first its sends and
 * receives, all at the same time, then its collectives, in their order. Where an argument of any is
 * wrong, none is made. Those without a stream are complete on return. The first error is returned.
 */
HETCCL_API hetcclResult_t hetcclGroupEnd(void);

/** The functions above, as hetcclCall_t names them. An all-reduce or reduce-scatter with a residual
 * is hetcclCallAllReduce or hetcclCallReduceScatter whose `residual` is set. */
typedef enum {
  hetcclCallAllReduce = 0,
  hetcclCallReduceScatter = 1,
  hetcclCallAllGather = 2,
  hetcclCallBroadcast = 3,
  hetcclCallReduce = 4,
  hetcclCallGather = 5,
  hetcclCallScatter = 6,
  hetcclCallAllToAll = 7,
  hetcclCallBarrier = 8,
  hetcclCallAllGatherV = 9,
  hetcclCallReduceScatterV = 10,
  hetcclCallGatherV = 11,
  hetcclCallScatterV = 12,
  hetcclCallAllToAllV = 13,
  hetcclCallSend = 14,
  hetcclCallRecv = 15,
  hetcclCallRecvAny = 16
} hetcclFunction_t;

/** The arguments of one call. Those that its function does not take must be zero. The struct may
 * grow at its end: `size` tells which fields the caller knows. */
typedef struct {
  size_t size; /**< sizeof(hetcclCall_t); equal in all calls of one hetcclStart */
  hetcclFunction_t function;
  hetcclDataType_t datatype;
  hetcclRedOp_t op;
  int root;                 /**< the root; of a message the peer */
  const void* sendbuff;     /**< as the function's; of a send the message */
  void* recvbuff;           /**< as the function's; of a receive the message */
  size_t count;             /**< the function's count, recvcount or sendcount */
  const size_t* sendcounts; /**< as the function's */
  const size_t* sdispls;    /**< as the function's sdispls, or displs beside sendcounts; or NULL */
  const size_t* recvcounts; /**< as the function's */
  const size_t* rdispls;    /**< as the function's rdispls, or displs beside recvcounts; or NULL */
  void* residual;           /**< as that of hetcclAllReduceWithResidual; or NULL */
  const void* factor; /**< a scalar of `datatype` in host memory, which hetcclStart reads, or NULL.
                           With one the call sums each rank's elements times its own factor,
                           whatever `op` is */
  uint32_t tag;       /**< of a message */
  int* source;        /**< of hetcclRecvAny */
} hetcclCall_t;

/** Work that hetcclStart has started. A value: it may be copied, and asked for at any time, by any
 * thread, after its communicator has gone, too. Zeros are work that is complete. */
typedef struct {
  uint64_t internal[4];
} hetcclWork_t;

/** Makes up to 65,536 calls, as within a group of their own: first the messages, all at the same
 * time, then the collectives, in their order. Where an argument of any is wrong, none is made. Each
 * has a deadline of `timeout_ms` milliseconds, or of the communicator's with 0. hetcclInvalidUsage
 * within a group of hetcclGroupStart.
 *
 * Without `work` (NULL) it waits as the functions do: on the host, without a stream, until the
 * calls are complete. With `work` it does not wait, and `*work` tells when they are. After an error
 * some calls may have been started, and `*work` tells of these. Calls that a graph records are no
 * part of
 * `*work`: the graph runs them. */
HETCCL_API hetcclResult_t hetcclStart(const hetcclCall_t* calls, size_t n_calls, hetcclComm_t comm,
                                      hetcclStream_t stream, int64_t timeout_ms,
                                      hetcclWork_t* work);
/** hetcclSuccess if the work is complete, else hetcclInProgress. Work that failed is complete: ask
 * hetcclCommGetAsyncError. It reads a few words, and takes no lock. In a forked child, where
 * nothing completes, hetcclInvalidUsage. */
HETCCL_API hetcclResult_t hetcclWorkQuery(const hetcclWork_t* work);
/** Waits until the work is complete, and drives progress meanwhile. hetcclTimeout once `timeout_ms`
 * have passed; a negative limit is none. Any number of threads may wait. */
HETCCL_API hetcclResult_t hetcclWorkWait(const hetcclWork_t* work, int64_t timeout_ms);
/** Waits in the same way until nothing of `comm` is in flight, of what other threads start
 * meanwhile included. */
HETCCL_API hetcclResult_t hetcclCommWait(hetcclComm_t comm, int64_t timeout_ms);

/** Makes an operator for hetcclAllReduce, hetcclReduceScatter and hetcclReduce on `comm`: the sum
 * of each rank's elements times that rank's own scalar, of type `datatype`, which is the calls'
 * too. Every rank passes an operator made so, with the same datatype; scalars may differ. The
 * product is taken in the precision in which the sum is. On the host device a scalar in device
 * memory is read when a collective is called, and must live until then. hetcclCommDestroy and
 * hetcclCommAbort free operators that are left. */
HETCCL_API hetcclResult_t hetcclRedOpCreatePreMulSum(hetcclRedOp_t* op, void* scalar,
                                                     hetcclDataType_t datatype,
                                                     hetcclScalarResidence_t residence,
                                                     hetcclComm_t comm);
/** Frees an operator of `comm`. Collectives that were called with it go on. */
HETCCL_API hetcclResult_t hetcclRedOpDestroy(hetcclRedOp_t op, hetcclComm_t comm);

/** The bytes that `count` elements take in `encoding`: "int8", "int4:128", as in `wire`. */
HETCCL_API hetcclResult_t hetcclEncodedBytes(size_t count, const char* encoding, size_t* bytes);
/** Encodes `count` elements of `source` into the hetcclEncodedBytes of `codes`, with the bits that
 * collectives encode to. `datatype` is float32, float16 or bfloat16; elements are aligned to their
 * size, `codes` to 4 bytes, and the two do not overlap. Codes are rounded to nearest:
 * ":stochastic" is hetcclInvalidArgument. Communicates nothing, and is no part of a group.
 *
 * With `comm`, memory is that of its device: a GPU's kernel is enqueued on `stream`; on the host
 * the calling thread encodes before the call returns, or `stream` does in its order. With `comm`
 * NULL memory is the host's, `stream` is NULL, and the calling thread encodes. hetcclUnsupported
 * where the device has no kernels. */
HETCCL_API hetcclResult_t hetcclEncode(const void* source, void* codes, size_t count,
                                       hetcclDataType_t datatype, const char* encoding,
                                       hetcclComm_t comm, hetcclStream_t stream);
/** The inverse: decodes `codes` into `count` elements of `target`, each rounded to `datatype`. All
 * else is as with hetcclEncode. */
HETCCL_API hetcclResult_t hetcclDecode(const void* codes, void* target, size_t count,
                                       hetcclDataType_t datatype, const char* encoding,
                                       hetcclComm_t comm, hetcclStream_t stream);

/** An asynchronous stream of the host device: work enqueued on it runs in order, in the background.
 */
HETCCL_API hetcclResult_t hetcclHostStreamCreate(hetcclStream_t* stream);
/** Waits for its work first. No communicator may use it afterwards. */
HETCCL_API hetcclResult_t hetcclHostStreamDestroy(hetcclStream_t stream);
/** `*ticket` is reached when all work enqueued so far is complete. Tickets of one stream grow. */
HETCCL_API hetcclResult_t hetcclHostStreamRecord(hetcclStream_t stream, uint64_t* ticket);
/** hetcclSuccess when reached, else hetcclInProgress. */
HETCCL_API hetcclResult_t hetcclHostStreamQuery(hetcclStream_t stream, uint64_t ticket);
/** Waits, driving progress, until reached: hetcclSuccess; or until `timeout_ms` has passed
 * (negative: no limit): hetcclTimeout. Work that failed counts as reached: ask
 * hetcclCommGetAsyncError. Any number of threads may wait. */
HETCCL_API hetcclResult_t hetcclHostStreamWait(hetcclStream_t stream, uint64_t ticket,
                                               int64_t timeout_ms);

/** What waiting threads call. */
typedef void (*hetcclIdleHook_t)(void* context);
/** `hook(context)` is called by threads that wait in a blocking call or in hetcclHostStreamWait,
 * when nothing has moved for some 20 us, and then every 50 us. A library that must move data of its
 * own meanwhile does so there, as an MPI does. It must neither block nor call hetccl, and holds for
 * all communicators of the process; NULL: none, and none is running when this returns. */
HETCCL_API hetcclResult_t hetcclSetIdleHook(hetcclIdleHook_t hook, void* context);

/** Whether what is called with `stream` becomes part of a graph that the stream records, and runs
 * whenever the graph does. A graph can hold collectives of a communicator of one cluster, and
 * messages (hetcclSend, hetcclRecv) between ranks of one cluster whose library carries them, as
 * NCCL does: such a call waits, within its time-out (hetcclTimeout), until the library has
 * connected both. Others answer hetcclInvalidUsage there. Neither does harm. Gather, scatter and
 * all-to-all need a library that exchanges messages. Destroy graphs before the communicators whose
 * calls they hold. */
HETCCL_API hetcclResult_t hetcclCommIsCapturing(hetcclComm_t comm, hetcclStream_t stream,
                                                int* capturing);

/** Counters of one communicator on this rank, since init. */
typedef struct {
  size_t size;                /**< set to sizeof(hetcclCommStats_t) before the call */
  uint64_t operations;        /**< collectives called */
  uint64_t cross_bytes_sent;  /**< payload that this rank has sent to other clusters */
  uint64_t least_cross_bytes; /**< the least that all ranks together can send between clusters for
                                 these calls, but for hetcclGatherV, ScatterV and AllToAllV, of
                                 which no rank knows all lengths */
  uint64_t plans;             /**< plans made: stays constant in steady state */
} hetcclCommStats_t;
/** Reads the counters. */
HETCCL_API hetcclResult_t hetcclCommGetStats(hetcclComm_t comm, hetcclCommStats_t* stats);
/** The topology as JSON. Valid until the communicator is destroyed. */
HETCCL_API hetcclResult_t hetcclCommGetTopology(hetcclComm_t comm, const char** json);
/** What tuning (HETCCL_TUNE) knows and does, as JSON: {"mode", "file": HETCCL_TUNE_FILE's path,
 * "place": under which this communicator's results stand there, "summary": the same for people}. On
 * rank 0 of a communicator that searches also {"keys": [{"key", "state": "watching", "searching",
 * "settled" or "left", "setting", "us" and "default_us": of a call, on its slowest rank, or of a
 * step, 0: not known, "trials", "tried": [{"setting", "ratio": to where the search began}]}],
 * "rounds", "cancelled", "lost_us", "learnt"}. Calls of one key share a setting: those of one
 * collective whose blocks have more than 2^("size_class" - 1) and at most 2^"size_class" bytes.
 * `*json` is valid until this thread's next call of it. */
HETCCL_API hetcclResult_t hetcclCommGetTuning(hetcclComm_t comm, const char** json);
/** The program has finished a step, on all communicators of this process. With HETCCL_TUNE=step
 * settings are searched with which steps are short, computation included: for collectives that each
 * step calls equally often. Costs next to nothing otherwise. */
HETCCL_API hetcclResult_t hetcclStep(void);
/** From the next call on, collectives of a key use this setting, and no search changes it. `json`:
 * {"key", "setting"} as hetcclCommGetTuningSpace gives them. Every rank calls it between the same
 * collectives; ranks whose settings differ fail the communicator. hetcclInvalidArgument where an
 * algorithm or a value does not fit, hetcclInvalidUsage where all ranks are in one cluster or
 * HETCCL_DETERMINISTIC=1 is set. */
HETCCL_API hetcclResult_t hetcclCommSetTuning(hetcclComm_t comm, const char* json);
/** The key of such a call and the settings among which tuning searches, as JSON: {"key",
 * "encoding", "subspaces": [{"start", "axes": {parameter: [value]}}]}; the first start is the
 * default. "encoding" is how the call is encoded between clusters, "" if it is not: tuning leaves
 * encoded calls alone. `count` as the collective's own function counts it. `*json` is valid until
 * this thread's next call of it. */
HETCCL_API hetcclResult_t hetcclCommGetTuningSpace(hetcclComm_t comm, const char* collective,
                                                   size_t count, hetcclDataType_t datatype,
                                                   hetcclRedOp_t op, int root, const char** json);
/** The topology of the ranks that `topology` describes, as JSON: {"ranks": [...]} with, of each
 * rank, "rank", "host", "vendor" and what else hetcclCommGetTopology says of one. Clusters, border
 * ranks and links follow from the ranks; what the text says of them is not read. At most 65,536
 * ranks. Needs neither a communicator nor a network. `*json` is valid until this thread's next call
 * of it. */
HETCCL_API hetcclResult_t hetcclTopologyDescribe(const char* topology, const char** json);

/** A call that is planned but not made. */
typedef struct {
  size_t size;               /**< set to sizeof(hetcclPlanQuery_t) before the call */
  const char* topology;      /**< JSON, as for hetcclTopologyDescribe; at most 4,096 ranks */
  const char* collective;    /**< "all_reduce", "broadcast", ...; "send_recv": a message */
  size_t count;              /**< elements, as the collective's own function counts them */
  hetcclDataType_t datatype; /**< of the elements */
  hetcclRedOp_t op;          /**< where it reduces; hetcclNumOps: a pre-multiplied sum */
  int root;                  /**< where the collective has one; of a message, who sends */
  int rank;                  /**< whose steps are listed; -1: every rank's */
  size_t slice_bytes; /**< as HETCCL_SLICE_BYTES; 0: as hetccl would choose; of a message 0 */
  unsigned int depth; /**< as HETCCL_DEPTH; 0: as hetccl would choose; of a message 0 */
  int code;           /**< not 0: lists the instructions that run, too */
  size_t mutants;     /**< mutants to try: copies of the instructions with one mistake each,
                         which the verifier must reject; at most 100,000 */
  size_t seed;        /**< chooses them */
  const char* tuning; /**< JSON of hetcclCommGetTuning, of rank 0 of such a job: what was
                         learnt there corrects what is predicted; or NULL */
  int to;             /**< of a message, who receives */
} hetcclPlanQuery_t;
/** The plans of all ranks for one call, as JSON: slices; payload between each pair of clusters
 * against the least possible; the verdict of the verifier, which runs the instructions of all ranks
 * on symbols; each rank's steps, and with `code` its instructions. With `mutants`, how many
 * programs with one mistake the verifier has rejected, and which it has not. hetcclInvalidArgument
 * names what is wrong with the query, hetcclUnsupported says what would be too large. Needs neither
 * a communicator nor a network. `*json` is valid until this thread's next call of it. */
HETCCL_API hetcclResult_t hetcclPlanDescribe(const hetcclPlanQuery_t* query, const char** json);

/** Compares the times of two settings that took turns: `n` pairs, in microseconds. `*ratio` is the
 * time of `tried` over that of `beside`: the geometric mean of the middle half of the pairs'
 * ratios.
 * `*error` is the standard error of its logarithm. Tuning judges settings in this way. */
HETCCL_API hetcclResult_t hetcclCompareTimes(const double* tried, const double* beside, size_t n,
                                             double* ratio, double* error);

/** The last collectives and messages of this rank as JSON, at any time and from any thread, e.g.
 * while one hangs: the last 1,024 `operations`, each with its sequence, arguments, slices, state
 * ("launched", "started", "completed" or "failed") and when it came so far (microseconds since the
 * Unix epoch; null: not known); the last 256 `messages` and all that are under way, alike; and the
 * communicator's `failure`. Valid until this thread's next call of it. HETCCL_DUMP writes the same
 * to a file when a communicator fails. */
HETCCL_API hetcclResult_t hetcclCommDump(hetcclComm_t comm, const char** json);
/** What this machine offers, as JSON: devices, vendor libraries, transports, interfaces, settings;
 * what is missing and why. Valid until this thread's next call of it. */
HETCCL_API hetcclResult_t hetcclGetInfo(const char** json);

#ifdef __cplusplus
}
#endif
#endif /* HETCCL_HETCCL_H_ */
