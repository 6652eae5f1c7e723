/* Declarations that the files of the UCX adaptor share. */
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
  kLingerMs = 5000,      /* time for a peer to report that it has everything */
  kLastMs = 1000,        /* the same, at the end of the process */
  kCancelMs = 5000,      /* time for UCX to cancel operations */
  kLookMs = 1,           /* interval between looks at sockets */
  kDeafMs = 100,         /* pause of the listeners without free descriptors */
  kAheadBytes = 1 << 20, /* limit for data sent ahead of receives */
  kCreditBytes = kAheadBytes / 4,
  kMostWaiting = 1 << 16, /* limit for messages of one channel that wait at the sender */
  kWorkerBytes = 1 << 10  /* longest address of a UCX worker */
};

static const char kMagic[8] = "hcclux2";

/* The first message of each end over a socket, before UCX is used. */
typedef struct {
  char magic[8];
  uint8_t id[HETCCL_TRANSPORT_ID_BYTES];
  uint8_t nonce[16];
  uint64_t number; /* the sender's number of the channel */
  uint64_t bytes;  /* length of the address */
  uint8_t worker[kWorkerBytes];
} Hello;

/* An address that a process listens on. */
typedef struct {
  uint8_t family, unused; /* 4 or 6 */
  uint16_t port;          /* big endian */
  uint8_t ip[16];
} Where;

typedef enum { kData = 1, kCredit, kBye, kByeHeard } Kind;

/* Header of every message. */
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

/* A message that has arrived before its receive. */
typedef struct Arrival {
  struct Arrival* next;
  uint64_t number;
  int is_bye, ahead;
  void* remote; /* UCX's descriptor of data that wait at the sender, or NULL */
  size_t bytes;
  char data[];
} Arrival;

/* The words of an end. Side 1 sends its hello with its proof, side 0 sends its proof after that,
 * and side 1's last byte says that it accepts side 0 as the other end. A proof is a code with the
 * channel's key over both hellos. Without the key nobody can pass for an end, not even by replaying
 * recorded words, and UCX sees only the addresses of proven ends. */
typedef struct {
  Hello hello;
  uint8_t proof[kProofBytes];
  uint8_t accepted;
} Words;
enum { kProvenBytes = offsetof(Words, accepted), kAcceptedBytes };

/* A client of the listener, which may be anybody. */
typedef struct Guest {
  struct Guest* next;
  int fd;
  size_t got; /* received bytes of words */
  uint64_t since_ms;
  const void* host; /* the `connect` that has answered, or NULL */
  Words words;
} Guest;

/* Each channel has a UCX worker of its own, which only its peer can reach and whose failure affects
 * no other channel. */
struct Channel {
  Channel* next;
  Transport* transport;
  ucp_worker_h worker;
  ucp_ep_h ep; /* NULL while not connected */
  int socket;  /* closes when the peer's process ends */
  uint64_t number, their_number;
  Posts sends, receives;                          /* not yet counted as complete */
  int under_way;                                  /* posts that UCX works on */
  uint64_t sent, received;                        /* counts of completed posts */
  uint64_t next_send, next_number;                /* numbers of the next post and the next
                                                     arrival */
  uint64_t ahead, their_taken, taken, told_taken; /* bytes sent ahead, by this end and by the
                                                     other */
  Arrival* arrivals;                              /* by number */
  size_t held_bytes, waiting;                     /* of arrivals: here, and at the sender */
  int gone, broken, closed, bye_came, bye_heard;  /* gone: nothing more arrives */
  uint64_t closed_ms;
};

struct Transport {
  ucp_context_h context;
  pthread_mutex_t mutex; /* guards the members below: connect may run on any thread */
  int listeners[kMostHosts];
  int n_listeners;
  int epoll, bell, rung;
  int armed;
  uint64_t looked_ms;
  uint64_t deaf_until_ms; /* listeners pause for lack of descriptors; 0: they are watched */
  Guest* guests;          /* oldest first */
  Channel* channels;      /* including closed ones that linger */
};

static inline uint64_t now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* Sleeps without the mutex, longer each time, up to 1 ms. */
static inline void rest(Transport* transport, int* us) {
  const struct timespec time = {0, *us * 1000L};
  pthread_mutex_unlock(&transport->mutex);
  nanosleep(&time, NULL);
  pthread_mutex_lock(&transport->mutex);
  if (*us < 1000) *us *= 2;
}

/* Each file below calls only files above it. All functions except the table's are called with the
 * mutex held. */

/* ucx_guests.c: clients of the listeners. */

socklen_t address_of(const Where* where, struct sockaddr_storage* storage);
/* Makes `fd` wake the thread that sleeps on the transport's descriptor. */
void watch(Transport* transport, int fd);
/* Listens on an address of this host, if it can. */
int listen_at(Transport* transport, const char* host, Where* where);
/* Returns 1 once `wanted` bytes of a hello and its successors have arrived, 0 before. Returns -1 if
 * they will not: the other end is gone, has sent more, or has sent garbage. */
int read_words(int fd, Words* words, size_t wanted, size_t* got);
/* Accepts guests and reads their words; drops the oldest if there are too many. */
void serve_guests(Transport* transport);
void drop_guests(Transport* transport);

/* ucx_messages.c. */

/* Sends a message of the adaptor's own. */
void send_control(Channel* channel, Kind kind, uint64_t value);
/* Matches arrivals with posted receives. */
void match(Channel* channel);
/* Frees posts. The worker must have ended. */
void free_posts(Channel* channel);
/* Frees messages that no receive has taken. Needs the worker. */
void free_arrivals(Channel* channel);
/* Functions of the table, which take the mutex. */
int post_send(void* channel, const void* data, size_t bytes);
int post_receive(void* channel, void* data, size_t bytes);
int completed(void* channel, uint64_t* sends, uint64_t* receives);
/* UCX's callback. */
ucs_status_t on_message(void* channel, const void* header, size_t header_bytes, void* data,
                        size_t bytes, const ucp_am_recv_param_t* param);

/* ucx_channels.c. */

/* Makes a channel that is not yet in the transport's list. */
int make_channel(Transport* transport, Channel** made);
/* Fills in this end's hello; returns false if UCX's address is too long. */
int fill_hello(const Channel* channel, const uint8_t* id, Hello* hello);
/* Connects the channel to the end with the hello `theirs`. */
ucs_status_t join(Channel* channel, const Hello* theirs);
/* Frees a channel that is not in the transport's list. */
void free_channel(Channel* channel);
/* A function of the table, which takes the mutex. */
void close_channel(void* channel);
/* Drives all channels; returns whether anything has moved. */
int work(Transport* transport);
/* Wakes the thread that sleeps on the descriptor, after another thread has moved something. */
void ring(Transport* transport);

/* ucx_meeting.c: two ends meet over sockets. */

/* Exchanges hellos with the peer's end, until `given_up`. `socket` stays open. */
int meet(Transport* transport, const hetcclTransportPeer* peer, const Hello* own, Hello* theirs,
         int* socket);

#pragma GCC visibility pop
