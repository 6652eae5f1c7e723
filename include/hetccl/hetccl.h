/* hetccl: one communicator over unlike accelerators. The C API, shaped like NCCL's.
 *
 * Unless noted, functions are thread-safe. Threads that share a communicator must order their calls
 * themselves. Every rank issues the same collectives in the same order on one communicator.
 *
 * Licensed under the Apache License, Version 2.0. */
#ifndef HETCCL_HETCCL_H_
#define HETCCL_HETCCL_H_

#include <stddef.h>
#include <stdint.h>

#include "hetccl/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Gets HETCCL_VERSION_CODE of the loaded library. */
HETCCL_API hetcclResult_t hetcclGetVersion(int* version);
/** Returns a static text for a result, never NULL. */
HETCCL_API const char* hetcclGetErrorString(hetcclResult_t result);
/** Returns the full text of the last error: of `comm`, or, if NULL, of this thread's last failed
 * call. Valid until this thread's next call of hetccl. */
HETCCL_API const char* hetcclGetLastError(hetcclComm_t comm);

/** Makes an id. The calling process runs the rendezvous until every rank that joined has left. */
HETCCL_API hetcclResult_t hetcclGetUniqueId(hetcclUniqueId* id);
/** Joins a communicator as `rank` of `nranks`. Collective; blocks until all ranks have joined or
 * HETCCL_INIT_TIMEOUT_MS has passed.
 *
 * The rank uses the calling thread's current GPU, if there is one. That is a CUDA GPU if the thread
 * has a current context, which cudaSetDevice (since CUDA 12) and allocations create; else an AMD
 * GPU if the process uses HIP. Otherwise the rank uses the host. Finding this out loads and
 * initialises nothing.
 *
 * Within a group (hetcclGroupStart) the call returns the handle at once, and hetcclGroupEnd makes
 * all communicators of the group at the same time, so one thread can make those of several ranks.
 * Until then, only the functions that hetcclCommInitRankConfig lists accept the handle. Destroy the
 * handle even if hetcclGroupEnd fails. */
HETCCL_API hetcclResult_t hetcclCommInitRank(hetcclComm_t* comm, int nranks, hetcclUniqueId id,
                                             int rank);
/** The same with options; `config` may be NULL. If `config->blocking` is 0, returns
 * hetcclInProgress and a handle at once. Until hetcclCommGetAsyncError gives something other than
 * hetcclInProgress, only that function, hetcclGetLastError, hetcclCommSetTimeout, hetcclCommDestroy
 * and hetcclCommAbort accept the handle; the last two end the attempt. Destroy the handle even if
 * the attempt fails. */
HETCCL_API hetcclResult_t hetcclCommInitRankConfig(hetcclComm_t* comm, int nranks,
                                                   hetcclUniqueId id, int rank,
                                                   const hetcclConfig_t* config);
/** The same with several ids: every rank passes the same `nId` ids, from 1 to `nranks` of them. The
 * ranks meet at the first. `config` may be NULL. */
HETCCL_API hetcclResult_t hetcclCommInitRankScalable(hetcclComm_t* newcomm, int nranks, int myrank,
                                                     int nId, const hetcclUniqueId* commIds,
                                                     const hetcclConfig_t* config);
/** Makes all `ndev` ranks of a communicator in this process. comms[i] is rank i, on GPU devlist[i],
 * or on GPU i if `devlist` is NULL. The GPUs belong to the vendor of the calling thread's current
 * GPU, or else to the first loaded runtime that shows a GPU. In a process without a GPU the ranks
 * are on the host, and `devlist` must be NULL. On an error every comms[i] is NULL; within a group
 * the handles are as those of hetcclCommInitRank. */
HETCCL_API hetcclResult_t hetcclCommInitAll(hetcclComm_t* comms, int ndev, const int* devlist);
/** Splits `comm`. Collective over `comm`: ranks with equal `color` (0 or more) form a new
 * communicator, ordered by `key`, then by rank in `comm`. With HETCCL_SPLIT_NOCOLOR `*newcomm` is
 * NULL. If `config` is NULL, the options are those of `comm`. `blocking` is as in
 * hetcclCommInitRankConfig, but a rank without a color gets hetcclSuccess. An invalid color is
 * hetcclInvalidArgument on every rank. Within a group it acts as hetcclCommInitRank does. */
HETCCL_API hetcclResult_t hetcclCommSplit(hetcclComm_t comm, int color, int key,
                                          hetcclComm_t* newcomm, const hetcclConfig_t* config);
/** Makes a communicator without some ranks. Collective over the ranks of `comm` that are not in the
 * list; they keep their order. The excluded ranks do not call it, and may be busy. `comm` stays
 * usable. All callers pass the same `excludeRanksCount` (1 or more) ranks, in any order. `config`
 * and groups are as for hetcclCommSplit. Once the lowest remaining rank has called, ranks that have
 * not called, or have passed another list, are named by hetcclTimeout and hetcclInvalidUsage. A
 * communicator that has failed cannot be shrunk: the call returns its failure, or, with
 * HETCCL_SHRINK_ABORT, hetcclInvalidUsage. In that case make a new one by hetcclGetUniqueId. */
HETCCL_API hetcclResult_t hetcclCommShrink(hetcclComm_t comm, const int* excludeRanksList,
                                           int excludeRanksCount, hetcclComm_t* newcomm,
                                           const hetcclConfig_t* config, int shrinkFlags);
/** Waits for enqueued work (within its deadlines) and takes leave of the other ranks. No more calls
 * are possible afterwards, and hetcclCommDestroy only frees. For a communicator whose config is not
 * blocking: returns hetcclInProgress at once; hetcclCommGetAsyncError tells when it is done. */
HETCCL_API hetcclResult_t hetcclCommFinalize(hetcclComm_t comm);
/** Waits for enqueued work (within its deadlines) and frees the communicator. */
HETCCL_API hetcclResult_t hetcclCommDestroy(hetcclComm_t comm);
/** Ends enqueued work on every rank with hetcclAborted, and frees the communicator. Any thread may
 * call it while another waits in a collective of `comm`; that call returns hetcclAborted. */
HETCCL_API hetcclResult_t hetcclCommAbort(hetcclComm_t comm);
/** Ends all communicators, for the end of the process. A communicator whose work completes within
 * `grace_ms` (one limit for all) takes leave of its peers; the others are aborted. Afterwards no
 * memory of the user is touched, and handles can only be destroyed. exit() does the same with a
 * grace of two seconds. Call this function if memory is freed before exit(), as an interpreter
 * does. */
HETCCL_API hetcclResult_t hetcclShutdown(int64_t grace_ms);
/** Gets the communicator's first failure; hetcclInProgress while it is set up or finalized in the
 * background; else hetcclSuccess. */
HETCCL_API hetcclResult_t hetcclCommGetAsyncError(hetcclComm_t comm, hetcclResult_t* async_error);
/** Gets the number of ranks. */
HETCCL_API hetcclResult_t hetcclCommCount(hetcclComm_t comm, int* count);
/** Gets this process's rank. */
HETCCL_API hetcclResult_t hetcclCommUserRank(hetcclComm_t comm, int* rank);
/** Gets the number of this rank's GPU, as its vendor's runtime counts in this process; -1 if the
 * rank is on the host. */
HETCCL_API hetcclResult_t hetcclCommCuDevice(hetcclComm_t comm, int* device);
/** Sets the deadline, in milliseconds, of collectives and messages that are called from now on. */
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
/** The same as hetcclAllReduce, with error feedback: each call adds the rounding errors of earlier
 * encoded calls. `residual` is the caller's memory for one tensor: as many elements of the same
 * type as sendbuff, on this rank's device, zeros before the tensor's first call. Each call adds it
 * to the data that this rank encodes, and stores there what the codes lack. For a block with NaN,
 * infinities or numbers from 2^127 on (float16: 2^15) it stores zeros. It does not change elements
 * that this rank does not encode, nor any in calls that are not encoded. It must overlap no buffer;
 * it is used as the buffers are, in stream order. After a failed call fill it with zeros. Ranks
 * without a residual call hetcclAllReduce. hetcclInvalidArgument if it is NULL and count is not 0.
 */
HETCCL_API hetcclResult_t hetcclAllReduceWithResidual(const void* sendbuff, void* recvbuff,
                                                      void* residual, size_t count,
                                                      hetcclDataType_t datatype, hetcclRedOp_t op,
                                                      hetcclComm_t comm, hetcclStream_t stream);
/** The same for hetcclReduceScatter: `residual` has (number of ranks) * recvcount elements. */
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
/** recvbuff[i] = root's sendbuff[i]; only the root's sendbuff is read. In place: sendbuff ==
 * recvbuff. */
HETCCL_API hetcclResult_t hetcclBroadcast(const void* sendbuff, void* recvbuff, size_t count,
                                          hetcclDataType_t datatype, int root, hetcclComm_t comm,
                                          hetcclStream_t stream);
/** The same in place, in `buff`. */
HETCCL_API hetcclResult_t hetcclBcast(void* buff, size_t count, hetcclDataType_t datatype, int root,
                                      hetcclComm_t comm, hetcclStream_t stream);
/** recvbuff[i] = op over all ranks of sendbuff[i], on the root only. Other ranks' recvbuff is not
 * used and may be NULL. In place: sendbuff == recvbuff on the root. */
HETCCL_API hetcclResult_t hetcclReduce(const void* sendbuff, void* recvbuff, size_t count,
                                       hetcclDataType_t datatype, hetcclRedOp_t op, int root,
                                       hetcclComm_t comm, hetcclStream_t stream);
/** On the root: recvbuff[r*count + i] = rank r's sendbuff[i]. Other ranks' recvbuff is not used and
 * may be NULL. In place: sendbuff == recvbuff + rank*count on the root. */
HETCCL_API hetcclResult_t hetcclGather(const void* sendbuff, void* recvbuff, size_t count,
                                       hetcclDataType_t datatype, int root, hetcclComm_t comm,
                                       hetcclStream_t stream);
/** recvbuff[i] = root's sendbuff[rank*count + i]; only the root's sendbuff is read. In place:
 * recvbuff == sendbuff + rank*count on the root. */
HETCCL_API hetcclResult_t hetcclScatter(const void* sendbuff, void* recvbuff, size_t count,
                                        hetcclDataType_t datatype, int root, hetcclComm_t comm,
                                        hetcclStream_t stream);
/** recvbuff[r*count + i] = rank r's sendbuff[rank*count + i]. Never in place. */
HETCCL_API hetcclResult_t hetcclAllToAll(const void* sendbuff, void* recvbuff, size_t count,
                                         hetcclDataType_t datatype, hetcclComm_t comm,
                                         hetcclStream_t stream);

/* The same with blocks of any lengths, 0 included. `counts` has one entry per rank, in elements.
 * `displs` gives the beginning of each block in its buffer, in elements; NULL: contiguous. Both are
 * read before the call returns, and may differ in every call without new planning. */

/** As hetcclAllGather, but rank r sends recvcounts[r] elements. All ranks pass equal recvcounts. In
 * place: sendbuff == recvbuff + displs[rank]. */
HETCCL_API hetcclResult_t hetcclAllGatherV(const void* sendbuff, void* recvbuff,
                                           const size_t* recvcounts, const size_t* displs,
                                           hetcclDataType_t datatype, hetcclComm_t comm,
                                           hetcclStream_t stream);
/** As hetcclReduceScatter, but rank r gets sendcounts[r] elements. All ranks pass equal sendcounts.
 * In place: recvbuff == sendbuff + displs[rank]. */
HETCCL_API hetcclResult_t hetcclReduceScatterV(const void* sendbuff, const size_t* sendcounts,
                                               const size_t* displs, void* recvbuff,
                                               hetcclDataType_t datatype, hetcclRedOp_t op,
                                               hetcclComm_t comm, hetcclStream_t stream);
/** As hetcclGather, but this rank sends `sendcount` elements; only the root's recvcounts and displs
 * are read. If both ends' counts differ, the error names both. */
HETCCL_API hetcclResult_t hetcclGatherV(const void* sendbuff, size_t sendcount, void* recvbuff,
                                        const size_t* recvcounts, const size_t* displs,
                                        hetcclDataType_t datatype, int root, hetcclComm_t comm,
                                        hetcclStream_t stream);
/** As hetcclScatter, but this rank gets `recvcount` elements; only the root's sendcounts and displs
 * are read. */
HETCCL_API hetcclResult_t hetcclScatterV(const void* sendbuff, const size_t* sendcounts,
                                         const size_t* displs, void* recvbuff, size_t recvcount,
                                         hetcclDataType_t datatype, int root, hetcclComm_t comm,
                                         hetcclStream_t stream);
/** As hetcclAllToAll, but sendcounts[r] elements go to rank r, and recvcounts[r] come from it. */
HETCCL_API hetcclResult_t hetcclAllToAllV(const void* sendbuff, const size_t* sendcounts,
                                          const size_t* sdispls, void* recvbuff,
                                          const size_t* recvcounts, const size_t* rdispls,
                                          hetcclDataType_t datatype, hetcclComm_t comm,
                                          hetcclStream_t stream);

/** Completes on no rank before every rank has called it. */
HETCCL_API hetcclResult_t hetcclBarrier(hetcclComm_t comm, hetcclStream_t stream);

/** Sends `count` elements to `peer`, which calls hetcclRecv with the same count and type. Sends
 * from one rank to another match receives in call order. That order is separate from the order of
 * collectives, of other pairs, and of the other direction. When the deadline passes, the error
 * names the rank that has not made its call. To send to itself, a rank uses a group. */
HETCCL_API hetcclResult_t hetcclSend(const void* sendbuff, size_t count, hetcclDataType_t datatype,
                                     int peer, hetcclComm_t comm, hetcclStream_t stream);
/** Receives from `peer`; see hetcclSend. */
HETCCL_API hetcclResult_t hetcclRecv(void* recvbuff, size_t count, hetcclDataType_t datatype,
                                     int peer, hetcclComm_t comm, hetcclStream_t stream);
/** The same with a tag, which only guards the order: if the two ends' tags differ, or only one has
 * a tag (not 0), both ranks get an error. */
HETCCL_API hetcclResult_t hetcclSendTag(const void* sendbuff, size_t count,
                                        hetcclDataType_t datatype, int peer, uint32_t tag,
                                        hetcclComm_t comm, hetcclStream_t stream);
/** Receives from `peer` under the same tag; see hetcclSendTag. */
HETCCL_API hetcclResult_t hetcclRecvTag(void* recvbuff, size_t count, hetcclDataType_t datatype,
                                        int peer, uint32_t tag, hetcclComm_t comm,
                                        hetcclStream_t stream);
/** Receives the next message with `tag` (0: sent without one) from any rank that has one. Before
 * the call is complete, it writes the sender to `*source`, which may be NULL and must live until
 * then. If two receives can take a message, the one called first does. So a receive from a named
 * rank may wait behind an earlier receive from any rank. Messages with other tags are left to other
 * receives. Ranks that send all the time delay no other rank. It never receives a message of this
 * rank to itself. Works for ranks on the host, in a communicator of at most 256 ranks; else
 * hetcclUnsupported. The first call makes channels to all ranks; each channel has a thread that
 * waits until that rank's first message. */
HETCCL_API hetcclResult_t hetcclRecvAny(void* recvbuff, size_t count, hetcclDataType_t datatype,
                                        uint32_t tag, int* source, hetcclComm_t comm,
                                        hetcclStream_t stream);
/** Begins a group. Until the matching hetcclGroupEnd, this thread's sends, receives and
 * collectives, on any communicators and streams, and its calls that make communicators, are only
 * recorded. Groups may nest. Calls that end a communicator cannot be part of a group. */
HETCCL_API hetcclResult_t hetcclGroupStart(void);
/** Ends the outermost group. First makes the group's communicators, all at the same time; if one
 * fails, nothing else is done. Then starts the calls: for each communicator and stream first its
 * sends and receives, all at the same time, then its collectives, in order. If an argument of any
 * call is wrong, no call is made. Calls without a stream are complete on return. Returns the first
 * error; else hetcclInProgress while communicators that are not blocking are still being made. One
 * thread may call for several ranks, on one GPU or several. */
HETCCL_API hetcclResult_t hetcclGroupEnd(void);

/** Result of hetcclGroupSimulateEnd. Start from HETCCL_SIM_INFO_INITIALIZER. */
typedef struct {
  size_t size;         /**< set to sizeof(hetcclSimInfo_t) before the call */
  double estimated_us; /**< microseconds; -1: not known */
} hetcclSimInfo_t;
#define HETCCL_SIM_INFO_INITIALIZER {sizeof(hetcclSimInfo_t), -1}
/** Ends the outermost group without making its calls, and predicts how long they would take: the
 * time between clusters, as `hetccl plan` predicts it for untuned calls over this communicator's
 * measured links. Collectives of one communicator add up; different communicators run at the same
 * time. hetcclUnsupported if all ranks are in one cluster, and for sends and receives, which have
 * no prediction. hetcclInvalidUsage if the group makes communicators: these fail. The group ends in
 * any case. In a nested group the result is -1, and the outer group keeps the calls. */
HETCCL_API hetcclResult_t hetcclGroupSimulateEnd(hetcclSimInfo_t* info);

/** Functions for hetcclCall_t. An all-reduce or reduce-scatter with a residual is
 * hetcclCallAllReduce or hetcclCallReduceScatter with `residual` set. */
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

/** Arguments of one call. Arguments that the function does not take must be zero. The struct may
 * grow at its end: `size` tells which fields the caller knows. */
typedef struct {
  size_t size; /**< sizeof(hetcclCall_t); the same in all calls of one hetcclStart */
  hetcclFunction_t function;
  hetcclDataType_t datatype;
  hetcclRedOp_t op;
  int root;                 /**< the root; for a message the peer */
  const void* sendbuff;     /**< as the function's; for a send the message */
  void* recvbuff;           /**< as the function's; for a receive the message */
  size_t count;             /**< the function's count, recvcount or sendcount */
  const size_t* sendcounts; /**< as the function's */
  const size_t* sdispls;    /**< as the function's sdispls, or displs beside sendcounts; or NULL */
  const size_t* recvcounts; /**< as the function's */
  const size_t* rdispls;    /**< as the function's rdispls, or displs beside recvcounts; or NULL */
  void* residual;           /**< as in hetcclAllReduceWithResidual; or NULL */
  const void* factor;       /**< a scalar of `datatype` in host memory, which hetcclStart reads, or
                                 NULL. If set, the call sums each rank's elements times that rank's
                                 factor, and ignores `op` */
  uint32_t tag;             /**< for a message */
  int* source;              /**< for hetcclRecvAny */
} hetcclCall_t;

/** Work that hetcclStart has started. A plain value: it may be copied, and queried by any thread at
 * any time, even after its communicator is gone. Zeros mean complete work. */
typedef struct {
  uint64_t internal[4];
} hetcclWork_t;

/** Starts up to 65,536 calls, as a group of their own: first the messages, all at the same time,
 * then the collectives, in order. If an argument of any call is wrong, no call is made. Each call
 * has a deadline of `timeout_ms` milliseconds; 0: the communicator's. hetcclInvalidUsage within a
 * group of hetcclGroupStart.
 *
 * With `work` NULL it waits as the single functions do: on the host without a stream, until the
 * calls are complete. Otherwise it does not wait, and `*work` tells when they are complete. After
 * an error some calls may have started, and `*work` covers these. Calls that a graph records are
 * not part of `*work`: the graph runs them. */
HETCCL_API hetcclResult_t hetcclStart(const hetcclCall_t* calls, size_t n_calls, hetcclComm_t comm,
                                      hetcclStream_t stream, int64_t timeout_ms,
                                      hetcclWork_t* work);
/** Returns hetcclSuccess if the work is complete, else hetcclInProgress. Failed work counts as
 * complete: ask hetcclCommGetAsyncError. Reads a few words and takes no lock. In a forked child,
 * where nothing completes, returns hetcclInvalidUsage. */
HETCCL_API hetcclResult_t hetcclWorkQuery(const hetcclWork_t* work);
/** Waits until the work is complete, and drives progress meanwhile. Returns hetcclTimeout after
 * `timeout_ms`; a negative value means no limit. Any number of threads may wait. */
HETCCL_API hetcclResult_t hetcclWorkWait(const hetcclWork_t* work, int64_t timeout_ms);
/** Waits in the same way until `comm` has no work in flight, including work that other threads
 * start meanwhile. */
HETCCL_API hetcclResult_t hetcclCommWait(hetcclComm_t comm, int64_t timeout_ms);

/** Allocates `size` bytes (1 or more) on the calling thread's current GPU (see hetcclCommInitRank),
 * with the GPU's own runtime; on the host if the thread has no GPU. Every call accepts such memory
 * on ranks of that device. */
HETCCL_API hetcclResult_t hetcclMemAlloc(void** ptr, size_t size);
/** Frees memory of hetcclMemAlloc; any thread may call it. A GPU's runtime waits for work that uses
 * the memory; on the host no call may still use it. Other addresses are hetcclInvalidArgument. */
HETCCL_API hetcclResult_t hetcclMemFree(void* ptr);
/** Registers `size` bytes (1 or more) that calls of `comm` will use, with the vendor's library of
 * this rank's cluster, and on the host with RDMA devices, as ncclCommRegister does. `*handle` is
 * NULL if nothing was registered: there is no such library or device, or it cannot register such
 * memory. Calls may use the memory in any case. */
HETCCL_API hetcclResult_t hetcclCommRegister(hetcclComm_t comm, void* buff, size_t size,
                                             void** handle);
/** Ends a registration with this communicator. No call may still use the memory. hetcclCommDestroy
 * and hetcclCommAbort end all remaining registrations. NULL is hetcclSuccess. */
HETCCL_API hetcclResult_t hetcclCommDeregister(hetcclComm_t comm, void* handle);

/** Makes an operator for hetcclAllReduce, hetcclReduceScatter and hetcclReduce on `comm`: the sum
 * of each rank's elements times that rank's own scalar. The scalar has type `datatype`, as have the
 * calls. Every rank passes such an operator, made with the same datatype; scalars may differ. The
 * product has the precision of the sum. On the host device, a scalar in device memory is read when
 * a collective is called, and must live until then. hetcclCommDestroy and hetcclCommAbort free
 * remaining operators. */
HETCCL_API hetcclResult_t hetcclRedOpCreatePreMulSum(hetcclRedOp_t* op, void* scalar,
                                                     hetcclDataType_t datatype,
                                                     hetcclScalarResidence_t residence,
                                                     hetcclComm_t comm);
/** Frees an operator of `comm`. Collectives that were called with it complete. */
HETCCL_API hetcclResult_t hetcclRedOpDestroy(hetcclRedOp_t op, hetcclComm_t comm);

/** Gets the bytes that `count` elements take in `encoding`: "int8", "int4:128", as in `wire`. */
HETCCL_API hetcclResult_t hetcclEncodedBytes(size_t count, const char* encoding, size_t* bytes);
/** Encodes `count` elements of `source` to `codes`, which has hetcclEncodedBytes bytes; the bits
 * are those that collectives send. `datatype` is float32, float16 or bfloat16. Elements must be
 * aligned to their size and `codes` to 4 bytes; the two must not overlap. Rounds to nearest;
 * ":stochastic" is hetcclInvalidArgument. Communicates nothing, and is not part of a group.
 *
 * With `comm`, memory is that of its device. On a GPU a kernel is enqueued on `stream`. On the host
 * `stream` encodes in its order, or, if NULL, the calling thread encodes before the call returns.
 * With `comm` NULL, memory is the host's, `stream` must be NULL, and the calling thread encodes.
 * hetcclUnsupported if the device has no kernels. */
HETCCL_API hetcclResult_t hetcclEncode(const void* source, void* codes, size_t count,
                                       hetcclDataType_t datatype, const char* encoding,
                                       hetcclComm_t comm, hetcclStream_t stream);
/** The inverse: decodes `codes` to `count` elements of `target`, each rounded to `datatype`.
 * Otherwise as hetcclEncode. */
HETCCL_API hetcclResult_t hetcclDecode(const void* codes, void* target, size_t count,
                                       hetcclDataType_t datatype, const char* encoding,
                                       hetcclComm_t comm, hetcclStream_t stream);

/** Creates an asynchronous stream of the host device: work enqueued on it runs in order, in the
 * background. */
HETCCL_API hetcclResult_t hetcclHostStreamCreate(hetcclStream_t* stream);
/** Destroys a stream after waiting for its work. No communicator may use it afterwards. */
HETCCL_API hetcclResult_t hetcclHostStreamDestroy(hetcclStream_t stream);
/** Gets a ticket, which is reached when all work enqueued so far is complete. Tickets of one stream
 * grow. */
HETCCL_API hetcclResult_t hetcclHostStreamRecord(hetcclStream_t stream, uint64_t* ticket);
/** Returns hetcclSuccess if the ticket is reached, else hetcclInProgress. */
HETCCL_API hetcclResult_t hetcclHostStreamQuery(hetcclStream_t stream, uint64_t ticket);
/** Waits until the ticket is reached, and drives progress meanwhile. Returns hetcclTimeout after
 * `timeout_ms` (negative: no limit). Failed work counts as reached: ask hetcclCommGetAsyncError.
 * Any number of threads may wait. */
HETCCL_API hetcclResult_t hetcclHostStreamWait(hetcclStream_t stream, uint64_t ticket,
                                               int64_t timeout_ms);

/** A function that waiting threads call. */
typedef void (*hetcclIdleHook_t)(void* context);
/** Sets a hook, `hook(context)`, for all communicators of the process. Threads that wait in a
 * blocking call or in hetcclHostStreamWait call it when nothing has moved for about 20 us, then
 * every 50 us. A library that must move its own data meanwhile, such as an MPI, does so there. The
 * hook must neither block nor call hetccl. NULL removes it; when this call returns, the old hook is
 * not running. */
HETCCL_API hetcclResult_t hetcclSetIdleHook(hetcclIdleHook_t hook, void* context);

/** Tells whether `stream` is recording a graph, so that calls on it become part of the graph and
 * run whenever the graph does. A graph can hold collectives of a communicator with one cluster, and
 * messages (hetcclSend, hetcclRecv) between ranks of one cluster whose library carries them, as
 * NCCL does. Such a message waits, within its deadline (hetcclTimeout), until the library has
 * connected both ranks. Other calls return hetcclInvalidUsage without effect. Gather, scatter and
 * all-to-all need a library that exchanges messages. Destroy graphs before the communicators whose
 * calls they hold. */
HETCCL_API hetcclResult_t hetcclCommIsCapturing(hetcclComm_t comm, hetcclStream_t stream,
                                                int* capturing);

/** Counters of one communicator on this rank, since init. */
typedef struct {
  size_t size;                /**< set to sizeof(hetcclCommStats_t) before the call */
  uint64_t operations;        /**< number of collectives called */
  uint64_t cross_bytes_sent;  /**< payload sent by this rank to other clusters */
  uint64_t least_cross_bytes; /**< fewest bytes that all ranks together can send between clusters
                                   for these calls, except hetcclGatherV, ScatterV and AllToAllV,
                                   whose lengths no rank knows completely */
  uint64_t plans;             /**< number of plans made: constant in steady state */
} hetcclCommStats_t;
/** Reads the counters. */
HETCCL_API hetcclResult_t hetcclCommGetStats(hetcclComm_t comm, hetcclCommStats_t* stats);
/** Gets the topology as JSON, valid until the communicator is destroyed. */
HETCCL_API hetcclResult_t hetcclCommGetTopology(hetcclComm_t comm, const char** json);
/** Gets the state of tuning (HETCCL_TUNE) as JSON: {"mode", "file": path of HETCCL_TUNE_FILE,
 * "place": the key of this communicator's results in the file, "summary": the same as text}. On
 * rank 0 of a communicator that searches also {"keys": [{"key", "state": "watching", "searching",
 * "settled" or "left", "setting", "us" and "default_us": time of a call on its slowest rank, or of
 * a step; 0: unknown, "trials", "tried": [{"setting", "ratio": relative to the search's start}]}],
 * "rounds", "cancelled", "lost_us", "learnt"}. Calls with one key share a setting: those of one
 * collective with blocks of more than 2^("size_class" - 1) and at most 2^"size_class" bytes.
 * `*json` is valid until this thread's next call of this function. */
HETCCL_API hetcclResult_t hetcclCommGetTuning(hetcclComm_t comm, const char** json);
/** Marks the end of a step of the program, for all communicators of this process. With
 * HETCCL_TUNE=step the search minimises the time of steps, including computation, for collectives
 * that each step calls equally often. Costs almost nothing otherwise. */
HETCCL_API hetcclResult_t hetcclStep(void);
/** Sets the setting of a key: collectives use it from the next call on, and no search changes it.
 * `json`: {"key", "setting"} in the form of hetcclCommGetTuningSpace. Every rank calls it between
 * the same collectives; if the ranks' settings differ, the communicator fails.
 * hetcclInvalidArgument if an algorithm or value does not fit; hetcclInvalidUsage if all ranks are
 * in one cluster or HETCCL_DETERMINISTIC=1 is set. */
HETCCL_API hetcclResult_t hetcclCommSetTuning(hetcclComm_t comm, const char* json);
/** Gets the key of such a call, and the settings that tuning searches, as JSON: {"key", "encoding",
 * "subspaces": [{"start", "axes": {parameter: [value]}}]}; the first start is the default.
 * "encoding" is the call's encoding between clusters, or ""; tuning skips encoded calls. `count` is
 * as in the collective's own function. `*json` is valid until this thread's next call of this
 * function. */
HETCCL_API hetcclResult_t hetcclCommGetTuningSpace(hetcclComm_t comm, const char* collective,
                                                   size_t count, hetcclDataType_t datatype,
                                                   hetcclRedOp_t op, int root, const char** json);
/** Derives a topology from the ranks in `topology`, as JSON: {"ranks": [...]}, where each rank has
 * "rank", "host", "vendor" and other fields of hetcclCommGetTopology. Clusters, border ranks and
 * links are derived from the ranks; those in the text are ignored. At most 65,536 ranks. Needs
 * neither a communicator nor a network. `*json` is valid until this thread's next call of this
 * function. */
HETCCL_API hetcclResult_t hetcclTopologyDescribe(const char* topology, const char** json);

/** A call to plan without making it. */
typedef struct {
  size_t size;               /**< set to sizeof(hetcclPlanQuery_t) before the call */
  const char* topology;      /**< JSON, as for hetcclTopologyDescribe; at most 4,096 ranks */
  const char* collective;    /**< "all_reduce", "broadcast", ...; "send_recv": a message */
  size_t count;              /**< as in the collective's own function */
  hetcclDataType_t datatype; /**< type of the elements */
  hetcclRedOp_t op;          /**< for a reduction; hetcclNumOps: a pre-multiplied sum */
  int root;                  /**< if the collective has one; for a message the sender */
  int rank;                  /**< the rank whose steps are listed; -1: all */
  size_t slice_bytes;        /**< as HETCCL_SLICE_BYTES; 0: hetccl's choice; for a message 0 */
  unsigned int depth;        /**< as HETCCL_DEPTH; 0: hetccl's choice; for a message 0 */
  int code;                  /**< not 0: also lists the instructions that run */
  size_t mutants;     /**< number of mutants to try: copies of the instructions with one mistake
                           each, which the verifier must reject; at most 100,000 */
  size_t seed;        /**< seed of their random choice */
  const char* tuning; /**< JSON of hetcclCommGetTuning from rank 0 of such a job: corrects the
                           predictions by what was learnt there; or NULL */
  int to;             /**< for a message the receiver */
} hetcclPlanQuery_t;
/** Describes the plans of all ranks for one call, as JSON: slices; payload between each pair of
 * clusters, compared with the least possible; the verdict of the verifier, which runs the
 * instructions of all ranks symbolically; each rank's steps, and with `code` its instructions. With
 * `mutants`: how many programs with one mistake the verifier has rejected, and which it has not.
 * hetcclInvalidArgument names the error in the query; hetcclUnsupported names what is too large.
 * Needs neither a communicator nor a network. `*json` is valid until this thread's next call of
 * this function. */
HETCCL_API hetcclResult_t hetcclPlanDescribe(const hetcclPlanQuery_t* query, const char** json);

/** Compares the times of two settings that took turns: `n` pairs, in microseconds. `*ratio` is the
 * time of `tried` relative to `beside`: the geometric mean of the middle half of the pairs' ratios.
 * `*error` is the standard error of its logarithm. Tuning compares settings in this way. */
HETCCL_API hetcclResult_t hetcclCompareTimes(const double* tried, const double* beside, size_t n,
                                             double* ratio, double* error);

/** Gets this rank's recent collectives and messages as JSON, at any time and from any thread, for
 * example during a hang: the last 1,024 `operations`, each with its sequence number, arguments,
 * slices, state ("launched", "started", "completed" or "failed") and the times at which it reached
 * the states (microseconds since the Unix epoch; null: unknown); likewise the last 256 `messages`
 * and all pending ones; the `transports` to other ranks (`peers`), each with the `memory` that it
 * moves: "system", "device" (the device's own), or "pinned" (the device copies to pinned memory,
 * for the `reason` given); and the communicator's `failure`. Valid until this thread's next call of
 * this function. HETCCL_DUMP writes the same to a file when a communicator fails. */
HETCCL_API hetcclResult_t hetcclCommDump(hetcclComm_t comm, const char** json);
/** Describes this machine as JSON: devices, vendor libraries, transports, interfaces and settings,
 * and what is missing and why. Valid until this thread's next call of this function. */
HETCCL_API hetcclResult_t hetcclGetInfo(const char** json);

#ifdef __cplusplus
}
#endif
#endif /* HETCCL_HETCCL_H_ */
