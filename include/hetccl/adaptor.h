/* What a shared library offers that hetccl loads at run time: collectives of one cluster, devices,
 * transports, or several of these, as hetccl's own and vendors' libraries have them. An adaptor
 * needs this header and hetccl.h alone, and links nothing of hetccl.
 *
 * hetccl loads the adaptors of HETCCL_ADAPTORS (paths, with colons between them) and calls each
 * one's entry, `hetcclAdaptor`. An adaptor that is refused is named, with the reason, in a warning,
 * in `hetccl info`, and in the error of each communicator of hosts. docs/adaptors.md is the
 * guide; the programs adaptors/conformance.cc, device_conformance.cc and transport_conformance.cc
 * test an adaptor.
 *
 * Structs that begin with their size, as the adaptor was compiled, may grow at their end. Pieces
 * and messages, which come in arrays, do not grow. hetccl copies strings when it loads the adaptor.
 * Calls return 0, or a number that `error_text` explains. No exception may leave them.
 */
#ifndef HETCCL_ADAPTOR_H
#define HETCCL_ADAPTOR_H

#include <stddef.h>
#include <stdint.h>

#include "hetccl/hetccl.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Names of hetccl's own, which no part of an adaptor has: "host", "cuda", "hip", "nccl", "rccl",
 * "none", "shm", "tcp", "verbs", "ncclnet". */

#define HETCCL_ADAPTOR_ABI 1
#define HETCCL_ADAPTOR_ID_BYTES 128
#define HETCCL_OWN_SCORE 100

/* Collective libraries.
 *
 * Ranks of the host get the library with the best `score`; hetccl's own has HETCCL_OWN_SCORE. A
 * device's ranks have the library that names it (`device`), or none. Ranks
 * share a cluster if their libraries have the same name and version.
 */

/** What a collective library can do beyond reductions, broadcasts and barriers on one host. */
#define HETCCL_LIBRARY_JOINS_HOSTS (1U << 0)         /**< ranks of several hosts */
#define HETCCL_LIBRARY_JOINS_ARCHITECTURES (1U << 1) /**< ranks of unlike processors */
#define HETCCL_LIBRARY_EXCHANGES (1U << 2)           /**< hetcclLibraryExchange */
#define HETCCL_LIBRARY_SENDS (1U << 3)               /**< broadcasts with a receiver */

/** One call of all ranks of a cluster. */
typedef enum {
  hetcclLibraryAllReduce = 0, /**< one piece: recv = op over all ranks of send */
  hetcclLibraryReduce = 1,    /**< of each piece: recv of its root = op over all ranks of send */
  hetcclLibraryBroadcast = 2, /**< of each piece: recv of all ranks, or of one = send of its root */
  hetcclLibraryExchange = 3,  /**< all messages at the same time */
  hetcclLibraryBarrier = 4    /**< complete on no rank before all have started it */
} hetcclLibraryCall;

/** A piece of a reduction or broadcast; all ranks list the same pieces. `send` and `recv` are
 * equal, or do not overlap. A piece may have no elements; its pointers mean nothing
 * then. */
typedef struct {
  int root;         /**< rank in the cluster */
  int receiver;     /**< broadcasts: the only rank that receives, or -1: every rank, the root too */
  const void* send; /**< read: by reductions everywhere, by broadcasts at the root */
  void* recv;       /**< written where there is a result */
  size_t count;     /**< elements */
} hetcclLibraryPiece;

/** A message of an exchange. Each rank lists its own. The n-th that a rank sends to another is the
 * n-th that the other receives from it, and has as many elements. A rank may send to itself, also
 * in place. */
typedef struct {
  int peer;
  int sends; /**< 1: to `peer`; 0: from it */
  void* data;
  size_t count; /**< elements; 0: no message, which the other may leave out */
} hetcclLibraryMessage;

/** Lists and what they point to in lists live until `start` returns; buffers until the call is
 * complete. */
typedef struct {
  size_t size; /**< of this struct */
  hetcclLibraryCall call;
  hetcclDataType_t type;
  hetcclRedOp_t op; /**< of reductions */
  const hetcclLibraryPiece* pieces;
  size_t n_pieces;
  const hetcclLibraryMessage* messages;
  size_t n_messages;
  void* stream; /**< of libraries of a device: what the call runs on, in order */
  /** Of `type`, which a later hetccl may have more of than the adaptor knows: to move data this is
   * enough. */
  size_t element_bytes;
} hetcclLibraryWork;

/** A library of collectives of hosts' memory, or of a device's. After an error of `start` or `test`
 * hetccl calls `destroy` alone.
 *
 * Threads: calls of one communicator come one at a time, from any thread; those of different
 * communicators, `init` and `error_text` at the same time. */
typedef struct {
  size_t size;      /**< of this struct */
  const char* name; /**< 1 to 31 of a-z, 0-9 and _; none of hetccl's own */
  /** 1 to 63 characters: what the ranks of a cluster must have in common. What follows a semicolon
   * names the job: what is tuned holds for the next job, too. */
  const char* version;
  uint32_t capabilities; /**< HETCCL_LIBRARY_* */
  /** What a number means; NULL if that is not known. The text stays until the thread's next call.
   */
  const char* (*error_text)(int code);
  /** How well it serves this process: 0 not at all, e.g. since it is not started as it needs.
   * Called when the process's first communicator is made, on a thread of its own. It may wait for
   * other ranks; hetccl waits for it as long as for an init. */
  int (*score)(void);
  /** 1 if it reduces elements of `type` by `op`. hetccl asks for hetcclSum where it wants
   * hetcclAvg, and divides; it asks for no pre-multiplied sums, which adaptors do not have. Where
   * maxima and minima meet a NaN, they are NaN. All ranks get the same bits. Data of every type can
   * be broadcast and exchanged, whatever this says. */
  int (*reduces)(hetcclDataType_t type, hetcclRedOp_t op);
  /** On the first rank of a cluster: what its ranks meet by. As `score`, on a thread of its own. */
  int (*make_id)(int n_ranks, void* id);
  /** Collective: waits for the other ranks, `timeout_ms` at most, on a thread of its own. hetccl
   * gives it up then, or when the communicator fails. It makes a communicator other than NULL.
   */
  int (*init)(const void* id, int n_ranks, int rank, int64_t timeout_ms, void** communicator);
  /** Begins a call without waiting for other ranks. All ranks start the same calls in the same
   * order, and may start several before the first is complete. */
  int (*start)(void* communicator, const hetcclLibraryWork* work, void** request);
  /** Moves calls on without waiting, in much less than a millisecond where nothing moves: one
   * thread drives all communicators. hetccl may test any of the calls under way; what one needs of
   * others the adaptor moves on, too. Once `done` is 1 the request is gone, and the other ranks
   * need nothing more of this rank for the call. */
  int (*test)(void* communicator, void* request, int* done);
  /** Ends the communicator, with what is still under way: no buffer is touched after it returns. It
   * waits for no other rank. */
  void (*destroy)(void* communicator);
  /** The device whose memory its calls move, by the name that a device adaptor gives it; NULL: the
   * host. What changes for a device's library:
   * - `score` may be NULL; `abort` may not.
   * - The thread of `init` has the rank's device as its current one, that of other calls any: keep
   *   the device in the communicator. A NULL `stream` is that device's default stream.
   * - `reduces` and `start` may be asked for hetcclAvg.
   * - `start` enqueues the call on `stream` and returns. It makes no request. Streams may differ
   *   from call to call; the calls of a communicator run in the order in which they start.
   * - `test` gets no request. It returns an error once an enqueued call has failed.
   * - `destroy` comes once all that was enqueued is complete, or after `abort`. */
  const char* device;
  /** Ends all that is enqueued in bounded time, and what is enqueued later, without waiting. From
   * any thread at any time. hetccl calls `destroy` after it. */
  void (*abort)(void* communicator);
} hetcclLibraryAdaptor;

/* Devices.
 *
 * A device adaptor is a vendor's runtime: memory, streams, events. A rank asks for its device as
 * "<name>" or "<name>:<index>". Data crosses between its ranks' clusters and others through pinned
 * memory, which streams copy to and from. Hosts reduce for a device without `reduce`.
 *
 * Every call but `error_text`, `count` and `describe` is about the calling thread's current device,
 * which `use` sets. Streams run what is enqueued on them in order, by themselves: enqueueing calls
 * return at once, whatever the stream waits for. A NULL stream is the device's default stream.
 * All calls may come from any thread at the same time, but for those that enqueue on one stream.
 */

typedef struct {
  char model[128]; /**< for people */
  /** Ranks share a cluster if theirs are equal up to the first colon, or the library joins them. */
  char architecture[64];
  char bus_id[32]; /**< PCI address, as "0000:3b:00.0"; empty if it is not plugged in */
} hetcclDeviceDescription;

/** result[i] = (sources[0][i] op sources[1][i] op ...) / divisor, in that order. Floats of 8 and 16
 * bits are added up as float32 and rounded once, to nearest even. `divisor` is 1 but for hetcclAvg;
 * integers then truncate toward zero. Where maxima and minima meet a NaN, they are NaN. `result`
 * may be one of the sources. */
typedef struct {
  size_t size; /**< of this struct */
  void* result;
  const void* const* sources; /**< read before the call returns; device or pinned memory */
  size_t n_sources;           /**< 1 to 16 */
  size_t count;               /**< elements */
  hetcclDataType_t type;
  hetcclRedOp_t op;
  uint32_t divisor;
} hetcclDeviceReduction;

typedef struct {
  size_t size;      /**< of this struct */
  const char* name; /**< 1 to 31 of a-z, 0-9 and _; none of hetccl's own */
  /** 1 to 63 characters, for people: the runtime's. */
  const char* version;
  uint32_t capabilities;               /**< 0 */
  const char* (*error_text)(int code); /**< as the library's */
  int (*count)(int* devices);          /**< of this process; an error or 0: there are none */
  int (*describe)(int device, hetcclDeviceDescription* description); /**< zeroed before */
  /** Makes `device` the thread's current one. -1: the thread may have none again, or keep its own.
   */
  int (*use)(int device);
  int (*current)(int* device); /**< the thread's; -1: it has none yet */
  int (*allocate)(void** memory, size_t bytes);
  int (*free)(void* memory); /**< may wait for the device; so may free_pinned, pin and unpin */
  /** Page-locked memory of the host, at an address that the device uses, too. */
  int (*allocate_pinned)(void** memory, size_t bytes);
  int (*free_pinned)(void* memory);
  /** Whole pages that the process has mapped become as such memory, until `unpin`. */
  int (*pin)(void* memory, size_t bytes);
  int (*unpin)(void* memory);
  int (*create_stream)(void** stream); /**< which waits for no other, also not the default stream */
  int (*destroy_stream)(void* stream); /**< does not wait: what is enqueued goes on */
  int (*create_event)(void** event);
  int (*destroy_event)(void* event);
  int (*record)(void* event, void* stream); /**< the event: all enqueued so far is complete */
  int (*wait)(void* stream, void* event);   /**< for the last `record`; none: returns at once */
  /** The stream waits until (int32_t)(*word - value) >= 0, and then sees what the writer wrote
   * before; `word` is pinned, and the host writes it later. */
  int (*wait_word)(void* stream, uint32_t* word, uint32_t value);
  /** The stream writes `value` once all before it is complete, and hosts see its results. */
  int (*write_word)(void* stream, uint32_t* word, uint32_t value);
  /** Between device and pinned memory, in any direction. */
  int (*copy)(void* stream, void* to, const void* from, size_t bytes);
  /** The stream calls it on a thread of the host, and goes on once it has returned. */
  int (*call_host)(void* stream, void (*function)(void*), void* argument);
  /* These may be NULL. */
  /** 1 in `capturing`: what is enqueued becomes part of a graph. NULL: never. */
  int (*is_capturing)(void* stream, int* capturing);
  /** 1 if `reduce` combines elements of `type` by `op`. Hosts reduce the others for the device, and
   * everything where `reduces` and `reduce` are both NULL. */
  int (*reduces)(hetcclDataType_t type, hetcclRedOp_t op);
  int (*reduce)(void* stream, const hetcclDeviceReduction* reduction);
} hetcclDeviceAdaptor;

/* Transports. */

/** What a transport can do. */
#define HETCCL_TRANSPORT_ENCRYPTS (1U << 0)    /**< nobody between the ends reads or changes data */
#define HETCCL_TRANSPORT_JOINS_HOSTS (1U << 1) /**< channels between hosts */

#define HETCCL_TRANSPORT_ADDRESS_BYTES 1024 /**< an address is no longer */
#define HETCCL_TRANSPORT_ID_BYTES 16
#define HETCCL_TRANSPORT_KEY_BYTES 32
/** The scores of hetccl's own transports: shm serves ranks of one host that share memory, tcp all.
 * Nothing outranks shm between two ranks one of which has a GPU. */
#define HETCCL_TCP_SCORE 10
#define HETCCL_SHM_SCORE 100

/** What `open` is given. It lives until `open` returns. */
typedef struct {
  size_t size; /**< of this struct */
  /** IP addresses of this host that the user lets hetccl use, as text; the best first. */
  const char* const* hosts;
  size_t n_hosts;
} hetcclTransportSettings;

/** The other end of a channel to be. It lives until `connect` returns. */
typedef struct {
  size_t size;         /**< of this struct */
  const void* address; /**< what `open` has made there */
  size_t address_bytes;
  int side; /**< 0 at one end, 1 at the other */
  /** Equal at both ends and at no other channel's. Strangers cannot guess it. */
  uint8_t id[HETCCL_TRANSPORT_ID_BYTES];
  /** A secret of the two ends. A transport that encrypts derives its keys from it, so that whoever
   * stands between the ends cannot pose as either. */
  uint8_t key[HETCCL_TRANSPORT_KEY_BYTES];
  /** 1 once hetccl wants this end no longer: time is up, or the job has failed. To be asked in
   * `connect`, with `context`, every 100 ms or more often. */
  int (*given_up)(void* context);
  void* context;
} hetcclTransportPeer;

/** Channels between two processes, or within one, that move bytes of hosts' memory. Ranks use it
 * with each other if their transports have the same name and version, and its score is higher than
 * that of hetccl's own. Calls return 0, or a number that `error_text` explains. No exception may
 * leave them.
 *
 * hetccl proves over each channel that the other end belongs to the job, before anything else.
 * Until then the other end may be anybody: what a stranger sends must end neither the process, nor
 * another channel, nor a `connect` that waits for somebody else.
 *
 * Threads: `connect`, `score` and `error_text` come at any time, from several threads. The other
 * calls of one transport and its channels come one at a time, from any thread. */
typedef struct {
  size_t size;           /**< of this struct */
  const char* name;      /**< 1 to 31 of a-z, 0-9 and _; none of hetccl's own */
  const char* version;   /**< 1 to 31 of a-z, 0-9, _ and .: of what travels between the ends */
  uint32_t capabilities; /**< HETCCL_TRANSPORT_* */
  /** What a number means; NULL if that is not known. The text stays until the thread's next call.
   */
  const char* (*error_text)(int code);
  /** How good a channel between two ranks is, of one host or of two; 0: there can be none. Both
   * ends choose by it: it depends on nothing else. */
  int (*score)(int same_host);
  /** Makes the process's transport. Others reach it at `address`, of which it writes `bytes`: 1 to
   * HETCCL_TRANSPORT_ADDRESS_BYTES. After an error, or when HETCCL_INIT_TIMEOUT_MS is over, hetccl
   * uses tcp and shm alone, and says why. */
  int (*open)(const hetcclTransportSettings* settings, void** transport, void* address,
              size_t* bytes);
  /** Makes this end of a channel other than NULL. Both ends call it. It waits until the other does,
   * or hetccl has `given_up`, and moves what that needs: nobody may call `progress` meanwhile. */
  int (*connect)(void* transport, const hetcclTransportPeer* peer, void** channel);
  /** Posts one or more bytes that the other end is to receive, and does not block. The n-th send of
   * one end meets the n-th receive of the other, which has as many bytes. Any number may be
   * outstanding. `data` stays valid until the send is counted by `completed`, or `close` returns.
   * A channel holds a bounded part of messages that are not received yet: then their sender waits.
   * If the other end has gone, `completed` says so, and not this call. */
  int (*send)(void* channel, const void* data, size_t bytes);
  int (*receive)(void* channel, void* data, size_t bytes);
  /** How many sends and receives have completed so far, in their order. A completed send arrives
   * even if this end closes the channel next. An error says that nothing more will complete: the
   * other end is gone, and so is all that it had sent. The counts are valid also then. A channel is
   * in error without being asked for anything: hetccl always has a receive outstanding. */
  int (*completed)(void* channel, uint64_t* sends, uint64_t* receives);
  /** Moves what can be moved without waiting; `moved` is 1 if that was anything. One thread drives
   * all transports: where nothing moves, it must take much less than a microsecond. */
  int (*progress)(void* transport, int* moved);
  /** A descriptor that polls readable when `progress` has something to do, and soon not any more
   * when it has nothing. hetccl sleeps on it after a `progress` that has moved nothing. */
  int (*poll_fd)(void* transport);
  /** Ends the channel. No buffer is touched after it returns. It waits for no other rank; the other
   * end sees an error once it has received all that was sent. */
  void (*close)(void* channel);
  /** After all channels were closed. */
  void (*destroy)(void* transport);
} hetcclTransportAdaptor;

typedef struct {
  size_t size;  /**< of this struct */
  uint32_t abi; /**< HETCCL_ADAPTOR_ABI, as compiled */
  /* What it has not is NULL. */
  const hetcclLibraryAdaptor* library;
  const hetcclDeviceAdaptor* device;
  const hetcclTransportAdaptor* transport;
} hetcclAdaptorTable;

/** The entry that an adaptor exports, with this name. `abi` is hetccl's. Returns NULL if the
 * adaptor cannot serve it; what it returns lives as long as the process. */
typedef const hetcclAdaptorTable* (*hetcclAdaptorEntry)(uint32_t abi);
#define HETCCL_ADAPTOR_ENTRY "hetcclAdaptor"

#ifdef __cplusplus
}
#endif

#endif
