/* What the files of the adaptor by UCX share. */
#pragma once

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <time.h>
#include <ucp/api/ucp.h>

#include "hetccl/adaptor.h"
#include "proof.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "heads and addresses travel in little endian"
#endif

#pragma GCC visibility push(hidden)

enum { kGivenUp = 1, kGone, kBroken, kAddress, kLong, kNoListener, kNoMemory, kSystem };
enum {
  kMostHosts = 8,
  kMostGuests = 256,
  kGuestMs = 10000, /* time for a hello */
  kDialMs = 3000,   /* time for a connection */
  kRedialMs = 50,
  kLingerMs = 5000,      /* time for a peer to say that it has all */
  kLastMs = 1000,        /* the same when the process ends */
  kCancelMs = 5000,      /* time for UCX to let go of buffers */
  kLookMs = 1,           /* between looks at sockets */
  kDeafMs = 100,         /* without descriptors, until the next look at the listeners */
  kAheadBytes = 1 << 20, /* sent ahead of receives, at most */
  kCreditBytes = kAheadBytes / 4,
  kMostWaiting = 1 << 16, /* data that wait at the sender, of one channel */
  kWorkerBytes = 1 << 10  /* the address of a UCX worker has no more */
};

static const char kMagic[8] = "hcclux2";

/* What both ends say over a socket before UCX. */
typedef struct {
  char magic[8];
  uint8_t id[HETCCL_TRANSPORT_ID_BYTES];
  uint8_t nonce[16];
  uint64_t number; /* the sender's, of the channel */
  uint64_t bytes;  /* of the address */
  uint8_t worker[kWorkerBytes];
} Hello;

/* Where a process listens. */
typedef struct {
  uint8_t family, unused; /* 4 or 6 */
  uint16_t port;          /* big endian */
  uint8_t ip[16];
} Where;

typedef enum { kData = 1, kCredit, kBye, kByeHeard } Kind;

/* In front of every message. */
typedef struct {
  uint64_t to;    /* the receiver's number of the channel */
  uint64_t value; /* of data and byes: their number; of credit: bytes */
  uint32_t kind;
  uint32_t ahead; /* data that count as sent ahead of their receive */
} Head;

typedef struct Transport Transport;
typedef struct Channel Channel;

/* A post, or a message of the adaptor's own. */
typedef struct Post {
  struct Post* next;
  Channel* channel;
  int is_own, started, done;
  void* data;
  size_t bytes;
  Head head;
} Post;

typedef struct {
  Post *first, *last;
} Posts;

/* What has come before its receive. */
typedef struct Arrival {
  struct Arrival* next;
  uint64_t number;
  int is_bye, ahead;
  void* remote; /* UCX's descriptor of data that wait at the sender, or NULL */
  size_t bytes;
  char data[];
} Arrival;

/* What an end sends: side 1's hello has its proof with it, side 0's comes after that, and side 1's
 * last byte says that it has taken side 0 for the end. A proof is a code by the channel's key over
 * both hellos, so nobody who lacks the key passes for an end, with whatever he has recorded, and
 * UCX sees the addresses of proven ends alone. */
typedef struct {
  Hello hello;
  uint8_t proof[kProofBytes];
  uint8_t accepted;
} Words;
enum { kProvenBytes = offsetof(Words, accepted), kAcceptedBytes };

/* Who has connected to the listener, and may be anybody. */
typedef struct Guest {
  struct Guest* next;
  int fd;
  size_t got; /* bytes of words */
  uint64_t since_ms;
  const void* host; /* the `connect` that has answered, or NULL */
  Words words;
} Guest;

/* A UCX worker each: nothing else ends with it, and its peer is alone with it. */
struct Channel {
  Channel* next;
  Transport* transport;
  ucp_worker_h worker;
  ucp_ep_h ep; /* NULL: not connected yet */
  int socket;  /* closes when the peer's process ends */
  uint64_t number, their_number;
  Posts sends, receives;                          /* not counted as complete */
  int under_way;                                  /* posts that UCX has */
  uint64_t sent, received;                        /* complete */
  uint64_t next_send, next_number;                /* numbers: of posts, and of what comes */
  uint64_t ahead, their_taken, taken, told_taken; /* bytes sent ahead: by this end, by the other */
  Arrival* arrivals;                              /* by number */
  size_t held_bytes, waiting;                     /* of arrivals: here, and at the sender */
  int gone, broken, closed, bye_came, bye_heard;  /* gone: nothing more comes */
  uint64_t closed_ms;
};

struct Transport {
  ucp_context_h context;
  pthread_mutex_t mutex; /* connect comes from any thread: of all that follows */
  int listeners[kMostHosts];
  int n_listeners;
  int epoll, bell, rung;
  int armed;
  uint64_t looked_ms;
  uint64_t
      deaf_until_ms; /* without descriptors: nobody is accepted; 0: the listeners are watched */
  Guest* guests;     /* oldest first */
  Channel* channels; /* those that are closed and linger, too */
};

static inline uint64_t now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* Longer each time, up to 1 ms, without the mutex. */
static inline void rest(Transport* transport, int* us) {
  const struct timespec time = {0, *us * 1000L};
  pthread_mutex_unlock(&transport->mutex);
  nanosleep(&time, NULL);
  pthread_mutex_lock(&transport->mutex);
  if (*us < 1000) *us *= 2;
}

/* Of the files below each calls those before it alone. All but the calls of the table are called
 * with the mutex held. */

/* ucx_guests.c: who connects to the listeners. */

socklen_t address_of(const Where* where, struct sockaddr_storage* storage);
/* `fd` wakes the thread that sleeps on the transport's descriptor. */
void watch(Transport* transport, int fd);
/* Listens on an address of this host, if it can. */
int listen_at(Transport* transport, const char* host, Where* where);
/* 1 once `wanted` bytes are there, of a hello and what comes after it; 0 before; -1 if they will
 * not be: the other end has gone, says more, or says what is none. */
int read_words(int fd, Words* words, size_t wanted, size_t* got);
/* Takes who has come and what they have said; drops the oldest where there are too many. */
void look_at_guests(Transport* transport);
void drop_guests(Transport* transport);

/* ucx_messages.c. */

/* Sends a message of the adaptor's own. */
void tell(Channel* channel, Kind kind, uint64_t value);
/* What has come meets what is posted. */
void match(Channel* channel);
/* Frees posts and arrivals, once UCX has none. */
void free_messages(Channel* channel);
/* Calls of the table, which take the mutex. */
int post_send(void* channel, const void* data, size_t bytes);
int post_receive(void* channel, void* data, size_t bytes);
int completed(void* channel, uint64_t* sends, uint64_t* receives);
/* UCX calls it. */
ucs_status_t on_message(void* channel, const void* header, size_t header_bytes, void* data,
                        size_t bytes, const ucp_am_recv_param_t* param);

/* ucx_channels.c. */

/* Makes one that is not yet among the transport's. */
int make_channel(Transport* transport, Channel** made);
/* What this end says of itself; false if UCX's address is too long. */
int fill_hello(const Channel* channel, const uint8_t* id, Hello* hello);
/* Connects it to the end that has said `theirs`. */
ucs_status_t join(Channel* channel, const Hello* theirs);
/* Frees one that is no longer, or not yet, among the transport's. */
void free_channel(Channel* channel);
/* A call of the table, which takes the mutex. */
void close_channel(void* channel);
/* Moves all channels; whether anything has moved. */
int work(Transport* transport);
/* The thread that sleeps on the descriptor looks at what another has moved. */
void ring(Transport* transport);

/* ucx_meeting.c: sockets, by which two ends meet. */

/* Exchanges hellos with the peer's end, until `given_up`. `socket` stays open. */
int meet(Transport* transport, const hetcclTransportPeer* peer, const Hello* own, Hello* theirs,
         int* socket);

#pragma GCC visibility pop
