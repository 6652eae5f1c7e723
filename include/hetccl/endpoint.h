/* hetccl's endpoints: data transfer from point to point without a communicator, for example for
 * key-value caches of inference servers. Each endpoint is created alone; any two may connect and
 * leave at any time. An endpoint gives its peers regions of device or host memory; peers put blocks
 * there or get blocks from there without its help.
 *
 * Functions are thread-safe, unless noted. Handles are numbers: an invalid handle is an error.
 * hetcclGetLastError(NULL) gives the text of an error.
 *
 * Licensed under the Apache License, Version 2.0. */
#ifndef HETCCL_ENDPOINT_H_
#define HETCCL_ENDPOINT_H_

#include <stddef.h>
#include <stdint.h>

#include "hetccl/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/** An endpoint. */
typedef struct hetcclEndpoint* hetcclEndpoint_t;
/** A list of blocks, for one endpoint. */
typedef struct hetcclBlockList* hetcclBlockList_t;
/** A pending put or get. */
typedef struct hetcclTransfer* hetcclTransfer_t;

/** Flags of a region. */
typedef enum {
  hetcclRegionGet = 1,  /**< peers may get from it */
  hetcclRegionPut = 2,  /**< peers may put to it */
  hetcclRegionHost = 4, /**< it is host memory, though the endpoint is on a device */
} hetcclRegionFlags_t;

/** `bytes` of a region of this endpoint and of one of the peer's. */
typedef struct {
  uint64_t localRegion, localOffset;
  uint64_t remoteRegion, remoteOffset;
  uint64_t bytes;
} hetcclBlock_t;

/** Options of a transfer; zeros are the defaults. */
typedef struct {
  size_t size;              /**< sizeof(hetcclTransferOptions_t) */
  const void* notification; /**< bytes delivered to the peer once all blocks have moved; or NULL */
  size_t notificationBytes; /**< at most 32 KiB */
  int notifies;             /**< 1: notifies the peer, even if the notification is empty */
  int64_t timeoutMs;        /**< it ends with hetcclTimeout after this time; 0: HETCCL_TIMEOUT_MS */
  hetcclStream_t stream;    /**< device memory is ready after the work enqueued on it */
} hetcclTransferOptions_t;

/** Longest notification, in bytes. */
#define HETCCL_MAX_NOTIFICATION 32768

/** Makes an endpoint. `name`: 1 to 128 bytes, for its peers and for messages. `device`: as in
 * hetcclConfig_t; NULL: the thread's current GPU, or the host. */
HETCCL_API hetcclResult_t hetcclEndpointCreate(hetcclEndpoint_t* endpoint, const char* name,
                                               const char* device);
/** Ends all transfers with hetcclAborted and leaves the peers. When it returns, no memory is
 * touched any more. */
HETCCL_API hetcclResult_t hetcclEndpointDestroy(hetcclEndpoint_t endpoint);
/** Copies a text that other endpoints need to connect. It contains the current regions that have
 * labels, and a secret unless HETCCL_SECRET_FILE is set. Pass the size of `buffer` in `*bytes`,
 * which becomes the length of the text. If `buffer` is NULL, only sets `*bytes`; if it is too
 * small, also returns hetcclInvalidArgument. */
HETCCL_API hetcclResult_t hetcclEndpointGetMetadata(hetcclEndpoint_t endpoint, char* buffer,
                                                    size_t* bytes);

/** Registers memory until hetcclEndpointDeregister. `flags`: of hetcclRegionFlags_t. `label`: at
 * most 128 bytes, which peers find in the metadata; may be NULL. `*region` is never reused, so a
 * late peer finds no other data there. */
HETCCL_API hetcclResult_t hetcclEndpointRegister(hetcclEndpoint_t endpoint, void* data,
                                                 size_t bytes, unsigned int flags,
                                                 const char* label, uint64_t* region);
/** Blocks until no transfer uses the memory. Peers whose transfers still use it after `timeoutMs`
 * (0: HETCCL_LIVENESS_MS) are disconnected. */
HETCCL_API hetcclResult_t hetcclEndpointDeregister(hetcclEndpoint_t endpoint, uint64_t region,
                                                   int64_t timeoutMs);

/** Connects to the endpoint with these metadata, which need not call anything. Both ends can then
 * put and get. Blocks for at most `timeoutMs` (0: HETCCL_INIT_TIMEOUT_MS). */
HETCCL_API hetcclResult_t hetcclEndpointConnect(hetcclEndpoint_t endpoint, const char* metadata,
                                                size_t bytes, int64_t timeoutMs, uint64_t* peer);
/** Disconnects a peer, and ends its transfers with hetcclAborted. */
HETCCL_API hetcclResult_t hetcclEndpointDisconnect(hetcclEndpoint_t endpoint, uint64_t peer);
/** Copies a JSON array of the peers, including recently lost ones: number, name, where, transport,
 * gone (the reason, or null), and counts. `buffer` and `*bytes` are as in
 * hetcclEndpointGetMetadata. */
HETCCL_API hetcclResult_t hetcclEndpointGetPeers(hetcclEndpoint_t endpoint, char* buffer,
                                                 size_t* bytes);

/** Checks blocks once, to move them often; adjacent blocks are merged. */
HETCCL_API hetcclResult_t hetcclEndpointPrepare(hetcclEndpoint_t endpoint,
                                                const hetcclBlock_t* blocks, size_t n,
                                                hetcclBlockList_t* list);
/** Frees a list. Transfers that were begun with it continue. */
HETCCL_API hetcclResult_t hetcclBlockListFree(hetcclBlockList_t list);
/** Begins to move blocks to a peer, without waiting. `options` may be NULL. Transfers run at the
 * same time, in no particular order. hetcclInvalidUsage if 4,096 transfers with that peer are
 * pending. */
HETCCL_API hetcclResult_t hetcclEndpointPut(hetcclEndpoint_t endpoint, uint64_t peer,
                                            hetcclBlockList_t list,
                                            const hetcclTransferOptions_t* options,
                                            hetcclTransfer_t* transfer);
/** The same from the peer's memory to this endpoint's. */
HETCCL_API hetcclResult_t hetcclEndpointGet(hetcclEndpoint_t endpoint, uint64_t peer,
                                            hetcclBlockList_t list,
                                            const hetcclTransferOptions_t* options,
                                            hetcclTransfer_t* transfer);
/** Returns hetcclInProgress while the transfer is pending, else its result. hetcclSuccess: the data
 * of a put or get has arrived. */
HETCCL_API hetcclResult_t hetcclTransferTest(hetcclTransfer_t transfer);
/** Waits for the result for at most `timeoutMs` (negative: no limit), then returns
 * hetcclInProgress. */
HETCCL_API hetcclResult_t hetcclTransferWait(hetcclTransfer_t transfer, int64_t timeoutMs);
/** A function that one of hetccl's threads calls. It must be brief and must not call hetccl. */
typedef void (*hetcclTransferHook_t)(void* context, hetcclResult_t result);
/** Calls `hook` once the transfer is done; at once if it is done already. One hook per transfer. */
HETCCL_API hetcclResult_t hetcclTransferSetHook(hetcclTransfer_t transfer,
                                                hetcclTransferHook_t hook, void* context);
/** Requests the end of a transfer, with hetcclAborted unless it completes first. Once
 * hetcclTransferTest no longer returns hetcclInProgress, none of its bytes moves. */
HETCCL_API hetcclResult_t hetcclTransferCancel(hetcclTransfer_t transfer);
/** Frees the handle; cancels a pending transfer. Does not wait: the memory is free once its regions
 * are deregistered. */
HETCCL_API hetcclResult_t hetcclTransferFree(hetcclTransfer_t transfer);

/** Sends a notification of at most HETCCL_MAX_NOTIFICATION bytes, after the frames of transfers
 * that are queued already. hetcclInvalidUsage if too much is queued. */
HETCCL_API hetcclResult_t hetcclEndpointNotify(hetcclEndpoint_t endpoint, uint64_t peer,
                                               const void* data, size_t bytes);
/** Takes the oldest notification. `buffer` has HETCCL_MAX_NOTIFICATION bytes. hetcclInProgress if
 * none arrives within `timeoutMs`. While 16,384 notifications or 64 MiB of them wait here, peers'
 * transfers stop. */
HETCCL_API hetcclResult_t hetcclEndpointTakeNotification(hetcclEndpoint_t endpoint,
                                                         int64_t timeoutMs, uint64_t* peer,
                                                         void* buffer, size_t* bytes);
/** Sets `*descriptor` to a file descriptor for poll(2) and its like. It polls readable while a
 * notification waits, or a peer has been lost since the last hetcclEndpointGetPeers. It belongs to
 * the endpoint: only poll it, and not after hetcclEndpointDestroy. */
HETCCL_API hetcclResult_t hetcclEndpointGetDescriptor(hetcclEndpoint_t endpoint, int* descriptor);

#ifdef __cplusplus
}
#endif

#endif /* HETCCL_ENDPOINT_H_ */
