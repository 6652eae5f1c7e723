/* hetccl's endpoints: data from point to point, without a communicator, as key-value caches of
 * serving need it. Endpoints are made alone. They connect to each other and leave at any time, many
 * to many. One gives its peers regions of memory, of a device or of the host; the other puts blocks
 * there, or gets them from there, without the first one's help.
 *
 * Functions are thread-safe, unless noted. Handles are numbers: one that is gone is an error.
 * Errors' texts: hetcclGetLastError(NULL).
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
/** A list of blocks of one endpoint. */
typedef struct hetcclBlockList* hetcclBlockList_t;
/** A put or a get under way. */
typedef struct hetcclTransfer* hetcclTransfer_t;

/** How memory is registered. */
typedef enum {
  hetcclRegionGet = 1,  /**< peers may get from it */
  hetcclRegionPut = 2,  /**< peers may put to it */
  hetcclRegionHost = 4, /**< it is the host's, though the endpoint is on a device */
} hetcclRegionFlags_t;

/** `bytes` of a region of this endpoint and of one of the peer's. */
typedef struct {
  uint64_t localRegion, localOffset;
  uint64_t remoteRegion, remoteOffset;
  uint64_t bytes;
} hetcclBlock_t;

/** How a transfer is made; zeros are the defaults. */
typedef struct {
  size_t size;              /**< sizeof(hetcclTransferOptions_t) */
  const void* notification; /**< bytes for the peer, once all blocks have moved; or NULL */
  size_t notificationBytes; /**< at most 32 KiB */
  int notifies;             /**< 1: tell the peer, even where the notification is empty */
  int64_t timeoutMs;        /**< then it ends with hetcclTimeout; 0: HETCCL_TIMEOUT_MS */
  hetcclStream_t stream;    /**< memory of a device is ready after what this holds */
} hetcclTransferOptions_t;

/** The longest notification, in bytes. */
#define HETCCL_MAX_NOTIFICATION 32768

/** Makes an endpoint. `name`: for its peers and for messages, 1 to 128 bytes. `device`: as
 * hetcclConfig_t's; NULL is the thread's current GPU, or the host. */
HETCCL_API hetcclResult_t hetcclEndpointCreate(hetcclEndpoint_t* endpoint, const char* name,
                                               const char* device);
/** Ends its transfers with hetcclAborted and leaves its peers. When it returns its memory is not
 * touched any more. */
HETCCL_API hetcclResult_t hetcclEndpointDestroy(hetcclEndpoint_t endpoint);
/** Copies what other endpoints need to connect: text, which holds a secret unless
 * HETCCL_SECRET_FILE is set, with the regions of now that
 * have labels. `*bytes`: the room of `buffer`, then the
 * length. With a buffer of NULL, or one that is too small, `*bytes` alone is set, and for the
 * latter the result is hetcclInvalidArgument. */
HETCCL_API hetcclResult_t hetcclEndpointGetMetadata(hetcclEndpoint_t endpoint, char* buffer,
                                                    size_t* bytes);

/** Registers memory, which stays until hetcclEndpointDeregister. `flags` of hetcclRegionFlags_t.
 * `label`: at most 128 bytes that peers find in the metadata; may be NULL. `*region` is never used
 * again, so that a late peer finds nothing there. */
HETCCL_API hetcclResult_t hetcclEndpointRegister(hetcclEndpoint_t endpoint, void* data,
                                                 size_t bytes, unsigned int flags,
                                                 const char* label, uint64_t* region);
/** Blocks until no transfer touches the memory. Peers that still do after `timeoutMs` (0: the time
 * of HETCCL_LIVENESS_MS) are lost. */
HETCCL_API hetcclResult_t hetcclEndpointDeregister(hetcclEndpoint_t endpoint, uint64_t region,
                                                   int64_t timeoutMs);

/** Connects to the endpoint whose metadata these are, which does not have to do anything. Both can
 * put and get. Blocks, `timeoutMs` at most (0: HETCCL_INIT_TIMEOUT_MS). */
HETCCL_API hetcclResult_t hetcclEndpointConnect(hetcclEndpoint_t endpoint, const char* metadata,
                                                size_t bytes, int64_t timeoutMs, uint64_t* peer);
/** Ends the transfers with that peer, with hetcclAborted. */
HETCCL_API hetcclResult_t hetcclEndpointDisconnect(hetcclEndpoint_t endpoint, uint64_t peer);
/** Copies a JSON array of the peers, those that are gone lately too: number, name, where,
 * transport, gone (why, or null), and counts. `buffer` and `*bytes` as of
 * hetcclEndpointGetMetadata. */
HETCCL_API hetcclResult_t hetcclEndpointGetPeers(hetcclEndpoint_t endpoint, char* buffer,
                                                 size_t* bytes);

/** Checks blocks once, to be moved often; neighbours become one. */
HETCCL_API hetcclResult_t hetcclEndpointPrepare(hetcclEndpoint_t endpoint,
                                                const hetcclBlock_t* blocks, size_t n,
                                                hetcclBlockList_t* list);
/** The list is not used any more; transfers that were begun with it go on. */
HETCCL_API hetcclResult_t hetcclBlockListFree(hetcclBlockList_t list);
/** Begins to move blocks to a peer. Does not wait. `options` may be NULL. Transfers run side by
 * side, in no order. hetcclInvalidUsage where 4,096 are under way with that peer. */
HETCCL_API hetcclResult_t hetcclEndpointPut(hetcclEndpoint_t endpoint, uint64_t peer,
                                            hetcclBlockList_t list,
                                            const hetcclTransferOptions_t* options,
                                            hetcclTransfer_t* transfer);
/** The same from a peer. */
HETCCL_API hetcclResult_t hetcclEndpointGet(hetcclEndpoint_t endpoint, uint64_t peer,
                                            hetcclBlockList_t list,
                                            const hetcclTransferOptions_t* options,
                                            hetcclTransfer_t* transfer);
/** hetcclInProgress while it is under way, else its result: a put has landed, a get has come. */
HETCCL_API hetcclResult_t hetcclTransferTest(hetcclTransfer_t transfer);
/** Waits for that, `timeoutMs` at most (negative: as long as it takes): then hetcclInProgress. */
HETCCL_API hetcclResult_t hetcclTransferWait(hetcclTransfer_t transfer, int64_t timeoutMs);
/** Called by one of hetccl's threads: must be brief, and call nothing of hetccl. */
typedef void (*hetcclTransferHook_t)(void* context, hetcclResult_t result);
/** Calls `hook` once the transfer is done: now, where it is. One hook a transfer. */
HETCCL_API hetcclResult_t hetcclTransferSetHook(hetcclTransfer_t transfer,
                                                hetcclTransferHook_t hook, void* context);
/** Has it end soon, with hetcclAborted unless it is done before. No byte of it moves once
 * hetcclTransferTest no longer gives hetcclInProgress. */
HETCCL_API hetcclResult_t hetcclTransferCancel(hetcclTransfer_t transfer);
/** Cancels it where it is under way. Does not wait: its memory is free when its regions are
 * deregistered. */
HETCCL_API hetcclResult_t hetcclTransferFree(hetcclTransfer_t transfer);

/** Sends bytes, at most HETCCL_MAX_NOTIFICATION, behind the transfers' frames that were made
 * before. hetcclInvalidUsage where too much waits to leave. */
HETCCL_API hetcclResult_t hetcclEndpointNotify(hetcclEndpoint_t endpoint, uint64_t peer,
                                               const void* data, size_t bytes);
/** Takes the oldest notification. `buffer` has HETCCL_MAX_NOTIFICATION bytes. hetcclInProgress
 * where
 * none comes within `timeoutMs`. While 16,384 wait here, or 64 MiB, peers' transfers stand
 * still. */
HETCCL_API hetcclResult_t hetcclEndpointTakeNotification(hetcclEndpoint_t endpoint,
                                                         int64_t timeoutMs, uint64_t* peer,
                                                         void* buffer, size_t* bytes);

#ifdef __cplusplus
}
#endif

#endif /* HETCCL_ENDPOINT_H_ */
