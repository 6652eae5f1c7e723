/* Adaptors: shared libraries that hetccl loads at run time. An adaptor offers collectives within a
 * cluster, devices, transports, or several of these, like those built into hetccl. It needs only
 * this header and hetccl.h, and links nothing of hetccl.
 *
 * hetccl loads the adaptors in HETCCL_ADAPTORS (paths, separated by colons) and calls the entry of
 * each, `hetcclAdaptor`. If hetccl refuses an adaptor, a warning, `hetccl info`, and the error of
 * each communicator of hosts name it and the reason. docs/adaptors.md is the guide; the programs
 * adaptors/conformance.cc, device_conformance.cc and transport_conformance.cc test an adaptor.
 *
 * Structs that begin with their size, as compiled into the adaptor, may grow at their end. Pieces
 * and messages do not grow, since they come in arrays. hetccl copies strings when it loads the
 * adaptor. Calls return 0, or a number that `error_text` explains. They must not throw. */
#ifndef HETCCL_ADAPTOR_H
#define HETCCL_ADAPTOR_H

#include <stddef.h>
#include <stdint.h>

#include "hetccl/hetccl.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Names of hetccl's own parts, which an adaptor must not use: "host", "cuda", "hip", "nccl",
 * "rccl", "none", "shm", "tcp", "verbs", "ncclnet". */

#define HETCCL_ADAPTOR_ABI 1
#define HETCCL_ADAPTOR_ID_BYTES 128
#define HETCCL_OWN_SCORE 100

/* Collective libraries.
 *
 * Ranks on the host use the library with the best `score`; hetccl's own has HETCCL_OWN_SCORE. Ranks
 * on a device use the library that names the device (`device`), or none. Ranks share a cluster if
 * their libraries have the same name and version. */

/** Capabilities of a collective library, besides reductions, broadcasts and barriers on one host.
 */
#define HETCCL_LIBRARY_JOINS_HOSTS (1U << 0)         /**< joins ranks of several hosts */
#define HETCCL_LIBRARY_JOINS_ARCHITECTURES (1U << 1) /**< joins ranks of different processors */
#define HETCCL_LIBRARY_EXCHANGES (1U << 2)           /**< implements hetcclLibraryExchange */
#define HETCCL_LIBRARY_SENDS (1U << 3)               /**< implements broadcasts with a receiver */

/** A call that all ranks of a cluster make. */
typedef enum {
  hetcclLibraryAllReduce = 0, /**< one piece: recv = op over all ranks of send */
  hetcclLibraryReduce = 1,    /**< for each piece: root's recv = op over all ranks of send */
  hetcclLibraryBroadcast = 2, /**< for each piece: recv of all ranks, or of one, = root's send */
  hetcclLibraryExchange = 3,  /**< all messages at the same time */
  hetcclLibraryBarrier = 4    /**< completes on no rank before all have started it */
} hetcclLibraryCall;

/** A piece of a reduction or broadcast; all ranks list the same pieces. `send` and `recv` are equal
 * or do not overlap. If a piece has no elements, its pointers have no meaning. */
typedef struct {
  int root;         /**< rank in the cluster */
  int receiver;     /**< broadcasts: the only receiving rank, or -1: every rank, including the
                         root */
  const void* send; /**< read by every rank in reductions, by the root in broadcasts */
  void* recv;       /**< written on ranks that get a result */
  size_t count;     /**< elements */
} hetcclLibraryPiece;

/** A message of an exchange. Each rank lists its own messages: the n-th that a rank sends to
 * another matches the n-th that the other receives from it, and has as many elements. A rank may
 * send to itself, also in place. */
typedef struct {
  int peer;
  int sends; /**< 1: to `peer`; 0: from it */
  void* data;
  size_t count; /**< elements; 0: no message, which the other rank may leave out */
} hetcclLibraryMessage;

/** Arguments of a call. Lists, and lists that they point to, live until `start` returns; buffers
 * until the call is complete. */
typedef struct {
  size_t size; /**< size of this struct */
  hetcclLibraryCall call;
  hetcclDataType_t type;
  hetcclRedOp_t op; /**< for reductions */
  const hetcclLibraryPiece* pieces;
  size_t n_pieces;
  const hetcclLibraryMessage* messages;
  size_t n_messages;
  void* stream; /**< for a device's library: the stream that runs the call, in order */
  /** Size of an element of `type`. A later hetccl may have types that the adaptor does not know;
   * this suffices to move them. */
  size_t element_bytes;
} hetcclLibraryWork;

/** A library of collectives for host memory, or for a device's memory. After an error of `start` or
 * `test`, hetccl calls only `destroy`.
 *
 * Threads: calls of one communicator come one at a time, from any thread. Calls of different
 * communicators, `init` and `error_text` may come at the same time. */
typedef struct {
  size_t size;      /**< size of this struct */
  const char* name; /**< 1 to 31 of a-z, 0-9 and _; not one of hetccl's own */
  /** 1 to 63 characters. The ranks of a cluster must have the same version. Text after a semicolon
   * identifies the job; tuning results apply to later jobs regardless of it. */
  const char* version;
  uint32_t capabilities; /**< HETCCL_LIBRARY_* */
  /** Returns the meaning of an error number, or NULL if unknown. The text stays valid until the
   * thread's next call. */
  const char* (*error_text)(int code);
  /** Returns how well it serves this process; 0: not at all, for example because the job was not
   * started in the way that it needs. Called when the process's first communicator is made, on a
   * thread of its own. It may wait for other ranks; hetccl waits for it as long as for an init. */
  int (*score)(void);
  /** Returns 1 if it can reduce elements of `type` by `op`. For hetcclAvg, hetccl asks for
   * hetcclSum and divides; it never asks for pre-multiplied sums. Maxima and minima with a NaN are
   * NaN. All ranks must get the same bits. Broadcasts and exchanges must support every type. */
  int (*reduces)(hetcclDataType_t type, hetcclRedOp_t op);
  /** Makes the id by which a cluster's ranks meet, on its first rank. Called on a thread of its
   * own, as `score`. */
  int (*make_id)(int n_ranks, void* id);
  /** Makes a communicator (not NULL). Collective: waits for the other ranks for at most
   * `timeout_ms`, on a thread of its own. When that time is over, or the communicator fails, hetccl
   * gives up waiting. */
  int (*init)(const void* id, int n_ranks, int rank, int64_t timeout_ms, void** communicator);
  /** Starts a call without waiting for other ranks. All ranks start the same calls in the same
   * order, and may start several before the first is complete. */
  int (*start)(void* communicator, const hetcclLibraryWork* work, void** request);
  /** Advances calls without waiting. If nothing moves, it must take much less than a millisecond:
   * one thread drives all communicators. hetccl may test any of the pending calls; the adaptor must
   * also advance other calls that this one depends on. Once `done` is 1, the request is gone, and
   * the other ranks need nothing more from this rank for the call. */
  int (*test)(void* communicator, void* request, int* done);
  /** Ends the communicator and all pending calls: no buffer is touched after it returns. Waits for
   * no other rank. */
  void (*destroy)(void* communicator);
  /** The device whose memory its calls move, by the name in its device adaptor; NULL: the host.
   * Differences for a device's library:
   *
   * - `score` may be NULL; `abort` may not.
   * - The thread of `init` has the rank's device as its current one; threads of other calls have
   *   any: keep the device in the communicator. A NULL `stream` is that device's default stream.
   * - `reduces` and `start` may be asked for hetcclAvg.
   * - `start` enqueues the call on `stream` and returns, without a request. Streams may differ from
   *   call to call; the calls of a communicator run in the order in which they start.
   * - `test` gets no request. It returns an error once an enqueued call has failed.
   * - `destroy` comes once all enqueued calls are complete, or after `abort`. */
  const char* device;
  /** Ends all enqueued calls in bounded time, and calls enqueued later, without waiting. Any thread
   * may call it at any time. hetccl then calls `destroy`. */
  void (*abort)(void* communicator);
} hetcclLibraryAdaptor;

/* Devices.
 *
 * A device adaptor is a vendor's runtime: memory, streams, events. A rank asks for its device as
 * "<name>" or "<name>:<index>". Data between its ranks' clusters and others passes through pinned
 * memory, to and from which streams copy. For a device without `reduce`, hosts reduce.
 *
 * Every call except `error_text`, `count` and `describe` applies to the calling thread's current
 * device, which `use` sets. A stream runs its work in order and in the background: enqueueing calls
 * return at once, whatever the stream waits for. A NULL stream is the device's default stream. Any
 * thread may make any call at any time, except that calls that enqueue on one stream come one at a
 * time. */

typedef struct {
  char model[128]; /**< for messages */
  /** Ranks can share a cluster if their architectures are equal up to the first colon, or if the
   * library joins different ones. */
  char architecture[64];
  char bus_id[32]; /**< PCI address, as "0000:3b:00.0"; empty if there is none */
} hetcclDeviceDescription;

/** result[i] = (sources[0][i] op sources[1][i] op ...) / divisor, in that order. Floats of 8 and 16
 * bits are added as float32 and rounded once, to nearest even. `divisor` is 1 except for hetcclAvg,
 * where integers truncate toward zero. Maxima and minima with a NaN are NaN. `result` may be one of
 * the sources. */
typedef struct {
  size_t size; /**< size of this struct */
  void* result;
  const void* const* sources; /**< read before the call returns; device or pinned memory */
  size_t n_sources;           /**< 1 to 16 */
  size_t count;               /**< elements */
  hetcclDataType_t type;
  hetcclRedOp_t op;
  uint32_t divisor;
} hetcclDeviceReduction;

typedef struct {
  size_t size;      /**< size of this struct */
  const char* name; /**< 1 to 31 of a-z, 0-9 and _; not one of hetccl's own */
  /** 1 to 63 characters: the runtime's version, for messages. */
  const char* version;
  uint32_t capabilities;               /**< 0 */
  const char* (*error_text)(int code); /**< as in hetcclLibraryAdaptor */
  int (*count)(int* devices);          /**< in this process; an error or 0: none */
  int (*describe)(int device, hetcclDeviceDescription* description); /**< the struct is zeroed
                                                                          before */
  /** Makes `device` the thread's current one. -1: the thread may lose its current device or keep
   * it. */
  int (*use)(int device);
  int (*current)(int* device); /**< the thread's; -1: none yet */
  int (*allocate)(void** memory, size_t bytes);
  int (*free)(void* memory); /**< may wait for the device, as may free_pinned, pin and unpin */
  /** Allocates page-locked host memory, at an address that is also valid on the device. */
  int (*allocate_pinned)(void** memory, size_t bytes);
  int (*free_pinned)(void* memory);
  /** Page-locks whole pages that the process has mapped, likewise, until `unpin`. */
  int (*pin)(void* memory, size_t bytes);
  int (*unpin)(void* memory);
  int (*create_stream)(void** stream); /**< waits for no other stream, not even the default
                                            stream */
  int (*destroy_stream)(void* stream); /**< does not wait: enqueued work continues */
  int (*create_event)(void** event);
  int (*destroy_event)(void* event);
  int (*record)(void* event, void* stream); /**< the event occurs once all enqueued work is
                                                 complete */
  int (*wait)(void* stream, void* event);   /**< waits for the last `record`; without one it
                                                 returns at once */
  /** Makes the stream wait until (int32_t)(*word - value) >= 0; it then sees what the writer wrote
   * before. `word` is pinned memory that the host writes later. */
  int (*wait_word)(void* stream, uint32_t* word, uint32_t value);
  /** Makes the stream write `value` once all work before it is complete and its results are visible
   * to hosts. */
  int (*write_word)(void* stream, uint32_t* word, uint32_t value);
  /** Copies between device and pinned memory, in any direction. */
  int (*copy)(void* stream, void* to, const void* from, size_t bytes);
  /** Makes the stream call a function on a host thread, and continue once it has returned. */
  int (*call_host)(void* stream, void (*function)(void*), void* argument);
  /* The functions below may be NULL. */
  /** Sets `capturing` to 1 if enqueued work becomes part of a graph. NULL: never. */
  int (*is_capturing)(void* stream, int* capturing);
  /** Returns 1 if `reduce` combines elements of `type` by `op`. Hosts do other reductions for the
   * device, and all of them if both `reduces` and `reduce` are NULL. */
  int (*reduces)(hetcclDataType_t type, hetcclRedOp_t op);
  int (*reduce)(void* stream, const hetcclDeviceReduction* reduction);
} hetcclDeviceAdaptor;

/* Transports. */

/** Capabilities of a transport. */
#define HETCCL_TRANSPORT_ENCRYPTS (1U << 0)    /**< nobody between the ends reads or changes data */
#define HETCCL_TRANSPORT_JOINS_HOSTS (1U << 1) /**< makes channels between hosts */

#define HETCCL_TRANSPORT_ADDRESS_BYTES 1024 /**< longest address */
#define HETCCL_TRANSPORT_ID_BYTES 16
#define HETCCL_TRANSPORT_KEY_BYTES 32
/** Scores of hetccl's own transports. shm serves ranks of one host that share memory, tcp all
 * ranks. Between two ranks of which one has a GPU, nothing outranks shm. */
#define HETCCL_TCP_SCORE 10
#define HETCCL_SHM_SCORE 100

/** Arguments of `open`, valid until it returns. */
typedef struct {
  size_t size; /**< size of this struct */
  /** IP addresses of this host that the user lets hetccl use, as text, the best first. */
  const char* const* hosts;
  size_t n_hosts;
} hetcclTransportSettings;

/** The other end of a future channel, valid until `connect` returns. */
typedef struct {
  size_t size;         /**< size of this struct */
  const void* address; /**< made by `open` at the other end */
  size_t address_bytes;
  int side; /**< 0 at one end, 1 at the other */
  /** The same at both ends, and different for every channel. Strangers cannot guess it. */
  uint8_t id[HETCCL_TRANSPORT_ID_BYTES];
  /** A secret of the two ends. A transport that encrypts derives its keys from it, so that nobody
   * between the ends can pose as either. */
  uint8_t key[HETCCL_TRANSPORT_KEY_BYTES];
  /** Returns 1 once hetccl no longer wants this end: time is up, or the job has failed. `connect`
   * must call it with `context` at least every 100 ms. */
  int (*given_up)(void* context);
  void* context;
} hetcclTransportPeer;

/** Channels between two processes, or within one, that move bytes of host memory. Ranks use the
 * transport with each other if their transports have the same name and version, and if its score
 * exceeds that of hetccl's own. Calls return 0, or a number that `error_text` explains. They must
 * not throw.
 *
 * First, hetccl proves over each channel that the other end belongs to the job. Until then the
 * other end may be anybody: data from a stranger must end neither the process, nor another channel,
 * nor a `connect` that waits for another peer.
 *
 * Threads: `connect`, `score` and `error_text` may come at any time, from several threads. The
 * other calls of one transport and its channels come one at a time, from any thread. */
typedef struct {
  size_t size;           /**< size of this struct */
  const char* name;      /**< 1 to 31 of a-z, 0-9 and _; not one of hetccl's own */
  const char* version;   /**< 1 to 31 of a-z, 0-9, _ and .: version of the protocol between the
                              ends */
  uint32_t capabilities; /**< HETCCL_TRANSPORT_* */
  /** Returns the meaning of an error number, or NULL if unknown. The text stays valid until the
   * thread's next call. */
  const char* (*error_text)(int code);
  /** Returns the quality of a channel between two ranks, on one host or on two; 0: impossible. It
   * must depend on nothing else, since both ends choose by it. */
  int (*score)(int same_host);
  /** Makes the process's transport. Writes the address at which others reach it, and its length: 1
   * to HETCCL_TRANSPORT_ADDRESS_BYTES. After an error, or once HETCCL_INIT_TIMEOUT_MS has passed,
   * hetccl uses only tcp and shm, and reports why. */
  int (*open)(const hetcclTransportSettings* settings, void** transport, void* address,
              size_t* bytes);
  /** Makes this end of a channel (not NULL). Both ends call it. It waits until the other end does
   * or hetccl has `given_up`, and drives the transport itself: nobody may call `progress`
   * meanwhile. */
  int (*connect)(void* transport, const hetcclTransportPeer* peer, void** channel);
  /** Posts one or more bytes for the other end to receive, without blocking. The n-th send of one
   * end matches the n-th receive of the other, which has as many bytes. Any number may be
   * outstanding. `data` stays valid until `completed` counts the send, or `close` returns. A
   * channel buffers a bounded amount of messages that are not received yet; beyond it the sender's
   * messages wait. If the other end is gone, `completed` reports it, not this call. */
  int (*send)(void* channel, const void* data, size_t bytes);
  int (*receive)(void* channel, void* data, size_t bytes);
  /** Counts the sends and receives that have completed so far, in order. A completed send arrives
   * even if this end closes the channel next. An error means that nothing more will complete: the
   * other end is gone, and nothing that it had sent is left to receive. The counts are valid in
   * that case, too. A channel must detect this without further calls: hetccl always has a receive
   * outstanding. */
  int (*completed)(void* channel, uint64_t* sends, uint64_t* receives);
  /** Moves whatever can move without waiting; sets `moved` to 1 if anything did. One thread drives
   * all transports, so if nothing moves it must take much less than a microsecond. */
  int (*progress)(void* transport, int* moved);
  /** A descriptor that polls readable when `progress` has work, and soon after no longer does when
   * it has none. hetccl sleeps on it after a `progress` that has moved nothing. */
  int (*poll_fd)(void* transport);
  /** Ends the channel. No buffer is touched after it returns. It waits for no other rank; the other
   * end sees an error once it has received all that was sent. */
  void (*close)(void* channel);
  /** Called after all channels were closed. */
  void (*destroy)(void* transport);
} hetcclTransportAdaptor;

typedef struct {
  size_t size;  /**< size of this struct */
  uint32_t abi; /**< HETCCL_ADAPTOR_ABI, as compiled */
  /* NULL for parts that the adaptor lacks. */
  const hetcclLibraryAdaptor* library;
  const hetcclDeviceAdaptor* device;
  const hetcclTransportAdaptor* transport;
} hetcclAdaptorTable;

/** The entry that an adaptor exports under this name. `abi` is hetccl's. Returns NULL if the
 * adaptor cannot serve that version; the table lives as long as the process. */
typedef const hetcclAdaptorTable* (*hetcclAdaptorEntry)(uint32_t abi);
#define HETCCL_ADAPTOR_ENTRY "hetcclAdaptor"

#ifdef __cplusplus
}
#endif

#endif
