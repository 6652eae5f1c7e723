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

#include "hetccl/types.h"

#ifdef __cplusplus
extern "C" {
#endif

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
 * has passed.
 *
 * The rank is on the calling thread's current GPU, where it has one: CUDA's, if the thread has a
 * current context, as cudaSetDevice (from CUDA 12 on) and allocations make one; else AMD's, if the
 * process uses HIP. Elsewhere it is on the host. To ask, nothing is loaded or initialised.
 *
 * In a group of hetcclGroupStart, the handle is given at once, and hetcclGroupEnd makes the
 * communicators of the group, all at the same time: so one thread makes those of several ranks.
 * Until then, only the functions named at hetcclCommInitRankConfig take the handle. It is to be
 * destroyed even if hetcclGroupEnd fails. */
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
/** The same with several ids: every rank passes the same `nId` ids, from 1 to `nranks` of them. The
 * ranks meet at the first one. `config` may be NULL. */
HETCCL_API hetcclResult_t hetcclCommInitRankScalable(hetcclComm_t* newcomm, int nranks, int myrank,
                                                     int nId, const hetcclUniqueId* commIds,
                                                     const hetcclConfig_t* config);
/** Makes all `ndev` ranks of a communicator in this process: comms[i] is rank i, on GPU devlist[i],
 * or on GPU i where `devlist` is NULL. The GPUs are those of the calling thread's current one's
 * vendor, or of the first runtime that the process has loaded and that shows a GPU. A process
 * without one gets ranks of the host, and `devlist` must be NULL. On an error every comms[i] is
 * NULL; in a group of hetcclGroupStart they are as those of hetcclCommInitRank. */
HETCCL_API hetcclResult_t hetcclCommInitAll(hetcclComm_t* comms, int ndev, const int* devlist);
/** Collective over `comm`: its ranks of equal `color` (0 or more) form a new communicator, ordered
 * by `key`, then by their rank in `comm`. With HETCCL_SPLIT_NOCOLOR `*newcomm` is NULL. `config`
 * NULL takes `comm`'s options; `blocking` is as in hetcclCommInitRankConfig, but a rank without a
 * color gets hetcclSuccess. A color that is none is hetcclInvalidArgument on every rank. In a group
 * it is as hetcclCommInitRank. */
HETCCL_API hetcclResult_t hetcclCommSplit(hetcclComm_t comm, int color, int key,
                                          hetcclComm_t* newcomm, const hetcclConfig_t* config);
/** Collective over the ranks of `comm` that are not in the list: they form a new communicator, in
 * the order of their ranks. The excluded ranks do not call it, and may be busy; `comm` stays as it
 * is. All pass the same `excludeRanksCount` (1 or more) ranks, in any order. `config` and groups
 * are as with hetcclCommSplit. Where the lowest rank that stays has called, ranks that did not, or
 * passed another list, are named by hetcclTimeout and hetcclInvalidUsage. A communicator that has
 * failed cannot be shrunk: the call returns its failure, and with HETCCL_SHRINK_ABORT
 * hetcclInvalidUsage. Make another by hetcclGetUniqueId then. */
HETCCL_API hetcclResult_t hetcclCommShrink(hetcclComm_t comm, const int* excludeRanksList,
                                           int excludeRanksCount, hetcclComm_t* newcomm,
                                           const hetcclConfig_t* config, int shrinkFlags);
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
/** The number of this rank's GPU, as its vendor's runtime counts them in this process; -1: the rank
 * is on the host. */
HETCCL_API hetcclResult_t hetcclCommCuDevice(hetcclComm_t comm, int* device);
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
/** The same in place, in `buff`. */
HETCCL_API hetcclResult_t hetcclBcast(void* buff, size_t count, hetcclDataType_t datatype, int root,
                                      hetcclComm_t comm, hetcclStream_t stream);
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
 * and what makes communicators, are only noted until the hetcclGroupEnd that belongs to it. Groups
 * may nest. What ends a communicator cannot be part of one. */
HETCCL_API hetcclResult_t hetcclGroupStart(void);
/** Ends the outermost group. First it makes the group's communicators, all at the same time; where
 * one fails, nothing else is done. Then it makes the calls: of each communicator and stream first
 * its sends and receives, all at the same time, then its collectives, in their order. Where an
 * argument of any is wrong, none is made. Those without a stream are complete on return. The first
 * error is returned; else hetcclInProgress where communicators that are not blocking are still
 * being made. A thread may call for several ranks, on one GPU or several. */
HETCCL_API hetcclResult_t hetcclGroupEnd(void);

/** What hetcclGroupSimulateEnd tells. Start from HETCCL_SIM_INFO_INITIALIZER. */
typedef struct {
  size_t size;         /**< set to sizeof(hetcclSimInfo_t) before the call */
  double estimated_us; /**< microseconds; -1: not known */
} hetcclSimInfo_t;
#define HETCCL_SIM_INFO_INITIALIZER {sizeof(hetcclSimInfo_t), -1}
/** Ends the outermost group without making its calls, and tells how long they are expected to take:
 * the time between clusters, as `hetccl plan` predicts it for untuned calls of this communicator's
 * measured links. The collectives of one communicator follow each other, those of several run at
 * the same time. hetcclUnsupported where all ranks are in one cluster, and for sends and receives,
 * whose times nothing predicts; hetcclInvalidUsage where the group makes communicators: these fail.
 * The group ends in any case; within another group nothing is told (-1), and that one keeps the
 * calls. */
HETCCL_API hetcclResult_t hetcclGroupSimulateEnd(hetcclSimInfo_t* info);

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

/** Allocates `size` bytes (1 or more) on the calling thread's current GPU, as hetcclCommInitRank
 * says which, by its own runtime; on the host where the thread has none. Every call takes such
 * memory on ranks of that device. */
HETCCL_API hetcclResult_t hetcclMemAlloc(void** ptr, size_t size);
/** Frees memory of hetcclMemAlloc, by any thread. A GPU's runtime waits for work that uses it; on
 * the host no call may use it any more. Other addresses are hetcclInvalidArgument. */
HETCCL_API hetcclResult_t hetcclMemFree(void* ptr);
/** Tells the vendor's library of this rank's cluster, and on the host RDMA devices, that calls of
 * `comm` will use these `size` bytes (1 or more), as ncclCommRegister does. `*handle` is NULL where
 * nothing was registered: where there is no such library or device, or where it does not register
 * such memory. Calls may use the memory in any case. */
HETCCL_API hetcclResult_t hetcclCommRegister(hetcclComm_t comm, void* buff, size_t size,
                                             void** handle);
/** Ends a registration of this communicator's, once no call uses the memory; hetcclCommDestroy and
 * hetcclCommAbort end those that are left. NULL is hetcclSuccess. */
HETCCL_API hetcclResult_t hetcclCommDeregister(hetcclComm_t comm, void* handle);

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
 * Unix epoch; null: not known); the last 256 `messages` and all that are under way, alike; the
 * `transports` that reach other ranks (`peers`), each with the `memory` that it moves:
 * "system" memory, the "device"'s itself, or "pinned" memory, to which the device copies, for the
 * `reason` given; and the communicator's `failure`. Valid until this thread's next call of it.
 * HETCCL_DUMP writes the same to a file when a communicator fails. */
HETCCL_API hetcclResult_t hetcclCommDump(hetcclComm_t comm, const char** json);
/** What this machine offers, as JSON: devices, vendor libraries, transports, interfaces, settings;
 * what is missing and why. Valid until this thread's next call of it. */
HETCCL_API hetcclResult_t hetcclGetInfo(const char** json);

#ifdef __cplusplus
}
#endif
#endif /* HETCCL_HETCCL_H_ */
